"""The product with a Kronecker matrix: arguments checked here, computed by kernels or the reference."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.ops import bindings, gpu
from kru.ops.kron.checks import check_kron_arguments
from kru.ops.kron.native import direct_product
from kru.ops.kron.reference import kron_matmul_reference


def kron_matmul(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (..., K) times the transpose of W_0 ⊗ ... ⊗ W_{F-1}, or of a sum of such products, without ever building W.

    Args:
        x: shape (..., K) with K = Q_0 ... Q_{F-1}; any leading shape, any strides.
        factors: any number of matrices (P_f, Q_f), square or rectangular, of x's dtype and device. With a leading
            dimension R in all of them, (R, P_f, Q_f), the matrix is the sum over r of the products of factors[f][r], at
            R times the cost of one.

    Returns:
        shape (..., N) with N = P_0 ... P_{F-1}. Differentiable with respect to x and every factor.

    float32, float64, complex64 and complex128 on the CPU run on the native kernels, float32 and complex64 on a GPU on
    kernels in Triton, all else on PyTorch operations.

    >>> import torch, kru
    >>> a, b = torch.randn(2, 2), torch.randn(3, 5)
    >>> x = torch.randn(4, 10)
    >>> torch.allclose(kru.kron_matmul(x, [a, b]), x @ torch.kron(a, b).T, atol=1e-5)
    True
    >>> c, d = torch.randn(2, 2), torch.randn(3, 5)
    >>> both = kru.kron_matmul(x, [torch.stack([a, c]), torch.stack([b, d])])
    >>> torch.allclose(both, x @ (torch.kron(a, b) + torch.kron(c, d)).T, atol=1e-5)
    True
    """
    if (direct := direct_product(x, factors)) is not None:
        return direct
    check_kron_arguments(x, factors)
    native = bindings.library is not None and x.is_cpu and x.dtype in bindings.DTYPES
    if not (native or gpu.runs(x)) or (not torch.compiler.is_compiling() and bindings.transforming()):
        if not torch.compiler.is_compiling():
            bindings.check_storage("x", x)
            bindings.check_storage("factors", factors)
        return kron_matmul_reference(x, factors)
    return torch.ops.kru.kron_matmul(x, list(factors))  # type: ignore[no-any-return]
