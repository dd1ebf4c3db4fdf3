"""Recurrent networks whose recurrent matrix is a Kronecker product of small, nearly unitary factors."""

from kru.ops import kron_dense, kron_matmul

__all__ = ["kron_dense", "kron_matmul"]
__version__ = "0.1.0"
