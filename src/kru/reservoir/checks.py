"""Checks of the arguments of reservoirs and read-outs."""

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor


def check_size(name: str, value: object, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return value


def check_scaling(name: str, value: object) -> float:
    """A finite number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not isfinite(value) or value < 0:
        raise ValueError(f"{name}: expected a finite number of at least zero, got {value}")
    return float(value)


def check_share(name: str, value: object) -> float:
    """A number in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 < value <= 1:
        raise ValueError(f"{name}: expected a number in (0, 1], got {value}")
    return float(value)


def check_leak(leak: float | Sequence[float] | Tensor, units: int) -> Tensor | None:
    """The leak as a tensor () or (N,); None for 1, which is no leak."""
    leaks = torch.as_tensor(leak, dtype=torch.float64)
    if leaks.dim() > 1 or (leaks.dim() == 1 and len(leaks) != units):
        raise ValueError(
            f"leak: expected one number or {units}, one per unit, got shape {tuple(leaks.shape)}"
        )
    if not bool(((leaks > 0) & (leaks <= 1)).all()):
        raise ValueError(f"leak: expected numbers in (0, 1], got {leak}")
    return None if bool((leaks == 1).all()) else leaks


def check_strengths(ridge: float | Sequence[float]) -> list[float]:
    """One or several regularisation strengths, each at least zero."""
    given = [ridge] if isinstance(ridge, int | float) else list(ridge)
    if not given:
        raise ValueError("ridge: expected at least one strength, got none")
    return [check_scaling("ridge", float(strength)) for strength in given]


def check_finite(name: str, values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
