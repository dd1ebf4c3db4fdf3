"""Checks of kron_matmul's arguments. Each error names the argument, what came and what was expected."""

from collections.abc import Sequence

from torch import Tensor


def check_kron_arguments(x: Tensor, factors: Sequence[Tensor]) -> None:
    """Raise an error that names the argument, what came and what was expected."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x: expected a tensor, got {type(x).__name__}")
    if x.dim() == 0:
        raise ValueError("x: expected shape (..., K), got a scalar")
    given: object = factors
    if isinstance(given, Tensor) or not hasattr(given, "__len__"):
        raise TypeError(f"factors: expected a list of at least one matrix, got {type(factors).__name__}")
    if len(factors) == 0:
        raise ValueError("factors: expected a list of at least one matrix, got none")
    size, dtype, device = 1, x.dtype, x.device
    for f, factor in enumerate(factors):
        if not isinstance(factor, Tensor):
            raise TypeError(f"factors[{f}]: expected a tensor, got {type(factor).__name__}")
        shape = factor.shape
        if len(shape) not in (2, 3) or 0 in shape or shape[:-2] != factors[0].shape[:-2]:
            raise ValueError(
                f"factors[{f}]: expected a matrix (P, Q), or in all factors (R, P, Q), got shape {tuple(shape)}"
            )
        if factor.dtype != dtype:
            raise TypeError(f"factors[{f}]: expected x's dtype {dtype}, got {factor.dtype}")
        if factor.device != device:
            raise ValueError(f"factors[{f}]: expected x's device {device}, got {factor.device}")
        size *= shape[-1]
    if x.shape[-1] != size:
        product = " * ".join(str(factor.shape[-1]) for factor in factors)
        raise ValueError(f"x: expected a last dimension of {product} = {size}, got shape {tuple(x.shape)}")
