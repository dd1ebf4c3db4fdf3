"""The product with a Kronecker matrix: arguments checked here, computed by the native kernels or the reference."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.ops.kron_reference import kron_matmul_reference

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def kron_matmul(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (..., K) times the transpose of W_0 ⊗ ... ⊗ W_{F-1}, without ever building that matrix.

    Args:
        x: shape (..., K) with K = Q_0 ... Q_{F-1}; any leading shape, any strides.
        factors: any number of matrices (P_f, Q_f), square or rectangular, of x's dtype and device.

    Returns:
        shape (..., N) with N = P_0 ... P_{F-1}. Differentiable with respect to x and every factor.

    >>> import torch, kru
    >>> a, b = torch.randn(2, 2), torch.randn(3, 5)
    >>> x = torch.randn(4, 10)
    >>> torch.allclose(kru.kron_matmul(x, [a, b]), x @ torch.kron(a, b).T, atol=1e-5)
    True
    """
    check_kron_arguments(x, factors)
    return kron_matmul_reference(x, factors)


def check_kron_arguments(x: Tensor, factors: Sequence[Tensor]) -> None:
    """Raise an error that names the argument, what came and what was expected."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x: expected a tensor, got {type(x).__name__}")
    if x.dim() == 0:
        raise ValueError("x: expected shape (..., K), got a scalar")
    if len(factors) == 0:
        raise ValueError("factors: expected at least one matrix, got none")
    size = 1
    for f, factor in enumerate(factors):
        if not isinstance(factor, Tensor):
            raise TypeError(f"factors[{f}]: expected a tensor, got {type(factor).__name__}")
        if factor.dim() != 2 or 0 in factor.shape:
            raise ValueError(f"factors[{f}]: expected a matrix (P, Q), got shape {tuple(factor.shape)}")
        if factor.dtype != x.dtype:
            raise TypeError(f"factors[{f}]: expected x's dtype {x.dtype}, got {factor.dtype}")
        if factor.device != x.device:
            raise ValueError(f"factors[{f}]: expected x's device {x.device}, got {factor.device}")
        size *= factor.shape[1]
    if x.shape[-1] != size:
        product = " * ".join(str(factor.shape[1]) for factor in factors)
        raise ValueError(f"x: expected a last dimension of {product} = {size}, got shape {tuple(x.shape)}")
