"""Layers whose factors change while they are trained: merged into larger ones, the function kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from kru.matrices import RecurrentMatrix
from kru.matrices.factored import expect_neighbours
from kru.moments import Replacement, carry_over
from kru.penalty import unitary_penalty

Owner = TypeVar("Owner", bound=nn.Module)


@dataclass(frozen=True)
class Reshaped:
    """What a change of a layer's factors did.

    Attributes:
        parameters_before, parameters: how many the layer has.
        penalty_before, penalty: `kru.unitary_penalty` of the layer. Merging keeps the function but not this
            value: a defect of W_i counts once for each row of W_{i+1} in the product. None where it has none,
            because a factor that isn't square is under the soft constraint.
    """

    parameters_before: int
    parameters: int
    penalty_before: float | None
    penalty: float | None


class Reshapable(nn.Module):
    """A recurrent layer whose matrices can be reshaped, all of them or those of one layer or direction."""

    num_layers: int
    bidirectional: bool

    def matrix(self, layer: int = 0, *, reverse: bool = False) -> RecurrentMatrix:
        raise NotImplementedError

    def merge(
        self,
        i: int,
        *,
        layer: int | None = None,
        reverse: bool | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Reshaped:
        """Replace the neighbouring factors W_i and W_{i+1} by one factor, W_i ⊗ W_{i+1}.

        The layer computes the same function, to rounding, with more parameters: a Kronecker product of small
        factors is a special case of the larger one. With ``constraint="exact"`` the new factor is unitary as
        well, W_i ⊗ W_{i+1} being so.

        Call it between two steps, and pass the optimiser: one that isn't told goes on to train factors that
        are no longer used. A factor's moments are derived from those of the two; with
        ``constraint="exact"``, whose parameters become coordinates around another matrix, they start anew.

        Args:
            i: which factors, 0 <= i < F - 1.
            layer, reverse: of which layer and direction; None for all.
            optimizer: the one that trains this layer.

        Returns:
            the parameters and the penalty before and after.

        >>> import kru
        >>> rnn = kru.KRU(10, 12, factors=[2, 2, 3])
        >>> change = rnn.merge(0)
        >>> rnn.matrix()
        KroneckerMatrix(4x4 ⊗ 3x3, field=complex, constraint=soft)
        >>> change.parameters - change.parameters_before
        16
        """
        matrices = self._matrices(layer, reverse)
        for matrix in matrices:
            expect_neighbours(i, matrix.shapes)
        return reshape(self, matrices, lambda matrix: matrix.merge_factors(i), optimizer)

    def _matrices(self, layer: int | None, reverse: bool | None) -> list[RecurrentMatrix]:
        layers = range(self.num_layers) if layer is None else [layer]
        directions = (False, True)[: 1 + self.bidirectional] if reverse is None else [reverse]
        return [self.matrix(k, reverse=direction) for k in layers for direction in directions]


def reshape(
    layer: nn.Module,
    owners: Sequence[Owner],
    change: Callable[[Owner], Replacement],
    optimizer: torch.optim.Optimizer | None,
) -> Reshaped:
    """Change each module that has factors, let the optimiser follow, and say what that did."""
    before = _count(layer), _penalty(layer)
    for owner in owners:
        replacement = change(owner)
        if optimizer is not None:
            carry_over(optimizer, replacement)
    return Reshaped(before[0], _count(layer), before[1], _penalty(layer))


def _count(layer: nn.Module) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())


def _penalty(layer: nn.Module) -> float | None:
    soft = [m for m in layer.modules() if isinstance(m, RecurrentMatrix) and m.constraint == "soft"]
    if not all(matrix.is_square for matrix in soft):
        return None
    with torch.no_grad():
        return unitary_penalty(layer).item()
