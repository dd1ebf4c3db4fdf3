"""What is computed: products with Kronecker matrices and the recurrence over time, with their gradients.

`kron_matmul` and `scan` are the public operations. Each has a plain PyTorch definition (`*_reference`) that works on
any device, and a native one in C++ for the CPU. Where there is no native kernel, `scan` runs on its `fallback`.
"""

from kru.ops.kron import kron_matmul
from kru.ops.kron.reference import kron_dense
from kru.ops.scan import ScanResult, scan

__all__ = ["ScanResult", "kron_dense", "kron_matmul", "scan"]
