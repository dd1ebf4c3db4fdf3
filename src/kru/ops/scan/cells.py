"""The cells and nonlinearities of `kru.ops.scan`, listed once.

Checks, kernels, layers and exporters all look them up here. A code is the constant of that name in `csrc/kru.h`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MODRELU_FLOOR = 1e-6
"""modReLU divides by max(|z|, MODRELU_FLOOR)."""
LEAK = 0.1
"""The slope of the leaky ReLU below zero."""


@dataclass(frozen=True)
class Cell:
    """A cell of the recurrence.

    A cell with more than one gate is real and has no choice of nonlinearity.

    Attributes:
        code: its number in C.
        gates: one letter per gate, in the order of the rows of the input map and of the factors.
        states: what is carried from step to step.
    """

    name: str
    code: int
    gates: tuple[str, ...]
    states: tuple[str, ...]


@dataclass(frozen=True)
class Nonlinearity:
    """A nonlinearity of the elman cell.

    Attributes:
        code: its number in C.
        function: what it does to a tensor; None for modReLU, which has a bias of its own: see `modrelu`.
    """

    name: str
    code: int
    function: Callable[[Tensor], Tensor] | None


def modrelu(z: Tensor, bias: Tensor, *, is_complex: bool) -> Tensor:
    """(|z| + b) z / max(|z|, 1e-6) where |z| + b >= 0, else 0, with one real b per unit.

    A complex z of N units has 2N values, real parts then imaginary parts. At z = 0 the function has no derivative
    for b > 0; there the derivative with respect to z is taken as 1 for b >= 0 and 0 for b < 0, which keeps a state
    that is exactly zero for many steps from multiplying the gradient by b / 1e-6 in each.
    """
    planes = z.reshape(*z.shape[:-1], 2 if is_complex else 1, bias.shape[0])
    squares = (planes * planes).sum(-2, keepdim=True)
    zero = squares == 0
    size = squares.masked_fill(zero, 1).sqrt()
    scale = torch.clamp(size + bias, min=0) / torch.clamp(size, min=MODRELU_FLOOR)
    scale = torch.where(zero, (bias >= 0).to(z.dtype), scale)
    return (planes * scale).reshape(z.shape)


def _identity(z: Tensor) -> Tensor:
    return z


def _leaky_relu(z: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(z, LEAK)


CELLS = {
    cell.name: cell
    for cell in (
        Cell("elman", 0, gates=("h",), states=("h",)),
        Cell("lstm", 1, gates=("i", "f", "g", "o"), states=("h", "c")),
        Cell("gru", 2, gates=("r", "z", "n"), states=("h",)),
    )
}
NONLINEARITIES = {
    nonlinearity.name: nonlinearity
    for nonlinearity in (
        Nonlinearity("identity", 0, _identity),
        Nonlinearity("tanh", 1, torch.tanh),
        Nonlinearity("relu", 2, torch.relu),
        Nonlinearity("leaky_relu", 4, _leaky_relu),
        Nonlinearity("modrelu", 3, None),
    )
}
