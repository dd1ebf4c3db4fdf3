"""Unitary matrices as chains of cheap stages, each on rows of complex numbers (..., N)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stage:
    """A unitary matrix that is applied without being built: tensors, and integers that say how they are meant."""

    tensors: tuple[Tensor, ...]

    def apply(self, x: Tensor) -> Tensor:
        """The matrix times each row of x."""
        raise NotImplementedError

    def adjoint(self, x: Tensor) -> Tensor:
        """The conjugate transpose, which is the inverse, times each row of x."""
        raise NotImplementedError


@dataclass(frozen=True)
class Diagonal(Stage):
    """Phases d, numbers of modulus one, (N,)."""

    def apply(self, x: Tensor) -> Tensor:
        return x * self.tensors[0]

    def adjoint(self, x: Tensor) -> Tensor:
        return x * self.tensors[0].conj()


@dataclass(frozen=True)
class Reflection(Stage):
    """I - 2 v v^H / |v|^2 for v (N,)."""

    def apply(self, x: Tensor) -> Tensor:
        v = self.tensors[0].resolve_conj()
        along = (x @ v.conj()) * (-2 / torch.view_as_real(v).square().sum())
        return x + along.unsqueeze(-1) * v

    adjoint = apply


@dataclass(frozen=True)
class Fourier(Stage):
    """The unitary discrete Fourier transform, or its inverse."""

    inverse: bool = False

    def apply(self, x: Tensor) -> Tensor:
        return _fourier(x, inverse=self.inverse)

    def adjoint(self, x: Tensor) -> Tensor:
        return _fourier(x, inverse=not self.inverse)


@dataclass(frozen=True)
class Permutation(Stage):
    """y_i = x_{order_i} for integers `order` (N,)."""

    def apply(self, x: Tensor) -> Tensor:
        return x.index_select(-1, self.tensors[0])

    def adjoint(self, x: Tensor) -> Tensor:
        return x.index_select(-1, self.tensors[0].argsort())


@dataclass(frozen=True)
class Rotations(Stage):
    """Pairs (a, b) of units, the first at `first`, partners `distance` apart, become (p (c a - s b), s a + c b).

    The tensors are c and s, real with c^2 + s^2 = 1, and p, complex of modulus one, one entry for each pair.
    """

    first: int = 0
    distance: int = 1

    def apply(self, x: Tensor) -> Tensor:
        a, b, c, s, p = self._split(x)
        return self._join(x, p * (c * a - s * b), s * a + c * b)

    def adjoint(self, x: Tensor) -> Tensor:
        a, b, c, s, p = self._split(x)
        a = p.conj() * a
        return self._join(x, c * a + s * b, c * b - s * a)

    def _split(self, x: Tensor) -> tuple[Tensor, ...]:
        count = len(self.tensors[0])
        pairs = x[..., self.first : self.first + 2 * count]
        # The number of blocks in full: without rows torch could not tell it.
        pairs = pairs.reshape(*x.shape[:-1], count // self.distance, 2, self.distance)
        return *pairs.unbind(-2), *(tensor.reshape(-1, self.distance) for tensor in self.tensors)

    def _join(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        turned = torch.stack([a, b], dim=-2).flatten(-3)
        rest = x.shape[-1] - turned.shape[-1]
        if not rest:
            return turned
        last = self.first + turned.shape[-1]
        return torch.cat([x[..., : self.first], turned, x[..., last:]], dim=-1)


def apply(stages: Sequence[Stage], x: Tensor) -> Tensor:
    """The product of the stages, the first one applied first, times each row of x."""
    for stage in stages:
        x = stage.apply(x)
    return x


def adjoint(stages: Sequence[Stage], x: Tensor) -> Tensor:
    """The conjugate transpose of the product times each row of x."""
    for stage in reversed(stages):
        x = stage.adjoint(x)
    return x


KINDS: tuple[type[Stage], ...] = (Diagonal, Reflection, Fourier, Permutation, Rotations)
"""In the order of the constants KRU_DIAGONAL ... in `csrc/kru.h`."""
_TENSORS = (1, 1, 0, 1, 3)


def to_program(stages: Sequence[Stage]) -> tuple[list[Tensor], list[int]]:
    """The stages' tensors, and integers from which `from_program` makes the same stages with such tensors."""
    tensors: list[Tensor] = []
    program: list[int] = []
    for stage in stages:
        tensors += stage.tensors
        program += [
            KINDS.index(type(stage)),
            *(int(getattr(stage, field.name)) for field in fields(stage)[1:]),
        ]
    return tensors, program


def from_program(tensors: Sequence[Tensor], program: Sequence[int]) -> list[Stage]:
    """The stages that `to_program` has taken apart."""
    rest, numbers = list(tensors), list(program)
    stages = []
    while numbers:
        kind, numbers = numbers[0], numbers[1:]
        if not 0 <= kind < len(KINDS):
            raise ValueError(f"program: expected kinds of stages from 0 to {len(KINDS) - 1}, got {kind}")
        options = len(fields(KINDS[kind])) - 1
        if len(rest) < _TENSORS[kind] or len(numbers) < options:
            raise ValueError(
                f"program: expected {_TENSORS[kind]} tensors and {options} integers for a stage of kind {kind}, "
                f"got {len(rest)} and {len(numbers)}"
            )
        own, rest = tuple(rest[: _TENSORS[kind]]), rest[_TENSORS[kind] :]
        stages.append(KINDS[kind](own, *numbers[:options]))
        numbers = numbers[options:]
    if rest:
        raise ValueError(f"tensors: expected {len(tensors) - len(rest)} for this program, got {len(tensors)}")
    return stages


def _fourier(x: Tensor, *, inverse: bool) -> Tensor:
    if not x.numel():
        return x  # MKL refuses to transform nothing
    y: Tensor = torch.fft.ifft(x, norm="ortho") if inverse else torch.fft.fft(x, norm="ortho")
    return y
