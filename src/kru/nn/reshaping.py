"""Layers whose factors change while they are trained: merged, split, and more terms in a sum of products."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from kru.matrices import RecurrentMatrix
from kru.matrices.factored import Factored, expect_neighbours, expect_terms, split_shapes
from kru.matrices.moments import Replacement, carry_over
from kru.optim.penalty import unitary_penalty

Owner = RecurrentMatrix | Factored
"""A module whose parameters are factors."""


@dataclass(frozen=True)
class Reshaped:
    """What a change of a layer's factors did.

    Attributes:
        parameters_before, parameters: how many the layer has.
        penalty_before, penalty: `kru.unitary_penalty` of the layer. Merging keeps the function but not this
            value: a defect of W_i counts once for each row of W_{i+1} in the product. None where it has none,
            because a factor that isn't square is under the soft constraint.
        errors: of a split, ||C - A ⊗ B|| / ||C|| for each matrix C that was split: layer by layer, direction by
            direction, within these the terms of a sum and the gates.
    """

    parameters_before: int
    parameters: int
    penalty_before: float | None
    penalty: float | None
    errors: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """The largest of the errors; zero where the function is kept."""
        return max(self.errors, default=0.0)


class Reshapable(nn.Module):
    """A recurrent layer whose matrices can be reshaped: all of them, or only one layer or direction."""

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

        Call it between two steps, and pass the optimiser; otherwise the optimiser would continue to train factors that
        are no longer used. The moments of the new factor are derived from the moments of the two old ones. With
        ``constraint="exact"`` they are reset, because the parameters become coordinates around another matrix.

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
        return merge(self, self._matrices(layer, reverse), i, optimizer)

    def split(
        self,
        i: int,
        factors: Sequence[int | tuple[int, int]],
        *,
        layer: int | None = None,
        reverse: bool | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Reshaped:
        """Replace factor i by two, whose Kronecker product is the nearest to it in the Frobenius norm.

        The opposite of `merge`, but the function is not kept: the errors are returned. With
        ``constraint="exact"`` the two factors are then replaced by the nearest unitary matrices.

        Args:
            i: which factor.
            factors: the two sizes, or pairs (rows, columns), with the factor's as product.
            layer, reverse, optimizer: as in `merge`.

        Returns:
            the parameters and the penalty before and after, and the errors.

        >>> import kru
        >>> rnn = kru.KRU(10, 12, factors=[2, 2, 3])
        >>> _ = rnn.merge(0)
        >>> rnn.split(0, (2, 2)).error < 1e-6
        True
        """
        return split(self, self._matrices(layer, reverse), i, factors, optimizer)

    def raise_rank(
        self,
        by: int = 1,
        *,
        layer: int | None = None,
        reverse: bool | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Reshaped:
        """Add terms to the sum of Kronecker products that each recurrent matrix is, R becoming R + `by`.

        The layer computes exactly the same function: the first factor of a new term is zero and the others are
        random, so that it contributes nothing, but learns. Not for ``constraint="exact"``, because a sum of
        unitary matrices is not unitary.

        Args:
            by: how many terms to add.
            layer, reverse, optimizer: as in `merge`.

        Returns:
            the parameters and the penalty before and after.

        >>> import kru
        >>> rnn = kru.KRULSTM(10, 12, factors=[3, 4])
        >>> change = rnn.raise_rank()
        >>> rnn.matrix()
        KroneckerMatrix(4 x 3x3 ⊗ 4x4, rank=2, field=real, constraint=soft)
        """
        return raise_rank(self, self._matrices(layer, reverse), by, optimizer)

    def _matrices(self, layer: int | None, reverse: bool | None) -> list[RecurrentMatrix]:
        layers = range(self.num_layers) if layer is None else [layer]
        directions = (False, True)[: 1 + self.bidirectional] if reverse is None else [reverse]
        return [self.matrix(k, reverse=direction) for k in layers for direction in directions]


def merge(
    layer: nn.Module, owners: Sequence[Owner], i: int, optimizer: torch.optim.Optimizer | None
) -> Reshaped:
    """Merge factors i and i + 1 of each module in a layer that owns factors."""
    for owner in owners:
        expect_neighbours(i, owner.shapes)
    return _reshape(layer, owners, lambda owner: owner.merge_factors(i), optimizer)


def split(
    layer: nn.Module,
    owners: Sequence[Owner],
    i: int,
    factors: Sequence[int | tuple[int, int]],
    optimizer: torch.optim.Optimizer | None,
) -> Reshaped:
    """Split factor i of each module in a layer that owns factors."""
    shapes = [split_shapes(i, factors, owner.shapes) for owner in owners]
    errors: list[float] = []

    def change(owner: Owner) -> list[Replacement]:
        replacements, found = owner.split_factor(i, shapes[0])
        errors.extend(found.flatten().tolist())
        return replacements

    return replace(_reshape(layer, owners, change, optimizer), errors=tuple(errors))


def raise_rank(
    layer: nn.Module, owners: Sequence[Owner], by: int, optimizer: torch.optim.Optimizer | None
) -> Reshaped:
    """Add terms to the sum of Kronecker products of each module in a layer that owns factors."""
    for owner in owners:
        expect_terms(by, owner.shapes)
    return _reshape(layer, owners, lambda owner: owner.add_terms(by), optimizer)


def _reshape(
    layer: nn.Module,
    owners: Sequence[Owner],
    change: Callable[[Owner], list[Replacement]],
    optimizer: torch.optim.Optimizer | None,
) -> Reshaped:
    """Change each owner, let the optimiser follow, and say what that did."""
    before = _count(layer), _penalty(layer)
    for owner in owners:
        for replacement in change(owner):
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
