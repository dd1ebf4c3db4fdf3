"""Modules whose parameters are Kronecker factors: how two become one, one becomes two, and a sum gets more terms."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kru.linalg.factors import Shapes, parse_factors, product_text
from kru.matrices.factor_pairs import (
    merged_gradient,
    merged_square,
    nearest_pair,
    relative_error,
    split_gradients,
    split_squares,
    to_matrices,
    to_stored,
)
from kru.matrices.moments import Carry, Replacement
from kru.ops.kron.reference import kron
from kru.ops.precision import computing_dtype


class Factored(nn.Module):
    """A module with the parameters `factor_0`, `factor_1`, ..., each a batch of matrices (..., P_f, Q_f).

    Attributes:
        shapes: rows and columns (P_f, Q_f) of each factor.
        field: "real", or "complex" for factors (..., 2, P_f, Q_f), real and imaginary parts.
        rank: number of products in the sum W. With more than one, each factor has a leading dimension over
            them.
    """

    shapes: Shapes
    field: str
    rank: int

    @property
    def factor_parameters(self) -> list[nn.Parameter]:
        """The factors as they are stored."""
        return [getattr(self, f"factor_{f}") for f in range(len(self.shapes))]

    def parameters_with(self, shapes: Shapes) -> int:
        """How many parameters all factors would have with other shapes."""
        first = self.factor_parameters[0]
        each = first.numel() // (first.shape[-2] * first.shape[-1])
        return each * sum(rows * columns for rows, columns in shapes)

    @torch.no_grad()
    def merge_factors(self, i: int) -> list[Replacement]:
        """Replace the factors i and i + 1 by W_i ⊗ W_{i+1}, as one factor of (P_i P_{i+1}, Q_i Q_{i+1})
        free entries."""
        expect_neighbours(i, self.shapes)
        old = self.factor_parameters[i : i + 2]
        a, b = (to_matrices(factor.to(computing_dtype(factor.dtype)), self.field) for factor in old)
        merged = _parameter(to_stored(kron(a, b)), like=old)
        self._replace_factors(i, 2, [merged])

        def averages(known: Sequence[Tensor]) -> list[Tensor]:
            grad_a, grad_b = (to_matrices(average.to(a.real.dtype), self.field) for average in known)
            return [to_stored(merged_gradient(grad_a, grad_b, a, b)).to(merged.dtype)]

        def squares(known: Sequence[Tensor]) -> list[Tensor]:
            square_a, square_b = (_moduli(square.to(a.real.dtype), self.field) for square in known)
            return [_planes(merged_square(square_a, square_b, a, b), self.field).to(merged.dtype)]

        return [Replacement(tuple(old), (merged,), averages, squares)]

    @torch.no_grad()
    def split_factor(self, i: int, shapes: Shapes) -> tuple[list[Replacement], Tensor]:
        """Put the nearest Kronecker product A ⊗ B of factor i in its place; its error, relative to the factor.

        Each matrix of the batch, the terms of a sum and the gates, is split by itself.
        """
        old = self.factor_parameters[i]
        c = to_matrices(old.to(computing_dtype(old.dtype)), self.field)
        a, b = nearest_pair(c, shapes)
        new = tuple(_parameter(to_stored(matrices), like=[old]) for matrices in (a, b))
        self._replace_factors(i, 1, new)

        def averages(known: Sequence[Tensor]) -> list[Tensor]:
            grad = to_matrices(known[0].to(c.real.dtype), self.field)
            return [to_stored(part).to(old.dtype) for part in split_gradients(grad, a, b)]

        def squares(known: Sequence[Tensor]) -> list[Tensor]:
            square = _moduli(known[0].to(c.real.dtype), self.field)
            return [_planes(part, self.field).to(old.dtype) for part in split_squares(square, a, b)]

        return [Replacement((old,), new, averages, squares)], relative_error(c, a, b)

    @torch.no_grad()
    def add_terms(self, count: int) -> list[Replacement]:
        """Add terms to the sum of Kronecker products: W_0 zero and the other factors random.

        They contribute nothing yet. The gradient of their W_0 is not zero, nor are the others' once that has
        moved; with all factors zero, all gradients would stay so.
        """
        expect_terms(count, self.shapes)
        replacements = []
        for f, old in enumerate(self.factor_parameters):
            known = old if self.rank > 1 else old.unsqueeze(0)
            drawn = torch.zeros_like(known[:1]).expand(count, *known.shape[1:])
            if f > 0:
                drawn = torch.stack(
                    [self._random_factor(f).to(known).reshape(known.shape[1:]) for _ in range(count)]
                )
            new = _parameter(torch.cat([known, drawn]), like=[old])
            setattr(self, f"factor_{f}", new)
            replacements.append(Replacement((old,), (new,), *_with_terms(self.rank, count)))
        self.rank += count
        return replacements

    def _random_factor(self, f: int) -> Tensor:
        """A factor of a new term."""
        raise NotImplementedError

    def _replace_factors(self, i: int, count: int, new: Sequence[nn.Parameter]) -> None:
        """Replace `count` factors by `new`; parameters are in the same order as in a new module of this shape."""
        factors = self.factor_parameters
        factors[i : i + count] = new
        others = {name: p for name, p in self._parameters.items() if not name.startswith("factor_")}
        for name in list(self._parameters):
            delattr(self, name)
        for f, factor in enumerate(factors):
            self.register_parameter(f"factor_{f}", factor)
        for name, parameter in others.items():
            self.register_parameter(name, parameter)
        self.shapes = tuple((factor.shape[-2], factor.shape[-1]) for factor in factors)


def expect_neighbours(i: int, shapes: Shapes) -> None:
    """Raise unless there are factors i and i + 1."""
    if not isinstance(i, int) or isinstance(i, bool):
        raise TypeError(f"i: expected the position of a factor, got {type(i).__name__}")
    if not 0 <= i < len(shapes) - 1:
        wanted = f"0 <= i < {len(shapes) - 1}" if len(shapes) > 1 else "two factors at least"
        raise ValueError(
            f"i: expected {wanted} to merge factors i and i + 1 of {product_text(shapes)}, got {i}"
        )


def split_shapes(i: int, parts: Sequence[int | tuple[int, int]], shapes: Shapes) -> Shapes:
    """The shapes of the two factors that factor i shall be split into; raise unless they fit."""
    if not isinstance(i, int) or isinstance(i, bool):
        raise TypeError(f"i: expected the position of a factor, got {type(i).__name__}")
    if not 0 <= i < len(shapes):
        raise ValueError(f"i: expected 0 <= i < {len(shapes)}, got {i}")
    rows, columns = shapes[i]
    split = parse_factors(parts, rows, columns, f"rows of factor {i}", f"columns of factor {i}")
    if len(split) != 2:
        raise ValueError(f"factors: expected two to split factor {i} into, got {len(split)}")
    return split


def expect_terms(count: int, shapes: Shapes) -> None:
    """Raise unless `count` more terms make a difference."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"by: expected a number of terms, got {type(count).__name__}")
    if count < 1:
        raise ValueError(f"by: expected at least one term, got {count}")
    if len(shapes) < 2:
        raise ValueError("rank: expected two factors at least: a sum of dense matrices is one dense matrix")


def _with_terms(rank: int, count: int) -> tuple[Carry, Carry]:
    """How moments are carried over to a factor with more terms.

    New terms have no history: their gradients average to zero, and their mean squares are the average over
    the existing terms. With zeros instead, their first steps would be too large.
    """

    def averages(known: Sequence[Tensor]) -> list[Tensor]:
        terms = known[0] if rank > 1 else known[0].unsqueeze(0)
        return [torch.cat([terms, torch.zeros_like(terms[:1]).expand(count, *terms.shape[1:])])]

    def squares(known: Sequence[Tensor]) -> list[Tensor]:
        terms = known[0] if rank > 1 else known[0].unsqueeze(0)
        mean = terms.mean((0, -2, -1), keepdim=True)
        return [torch.cat([terms, mean.expand(count, *terms.shape[1:])])]

    return averages, squares


def _parameter(stored: Tensor, *, like: Sequence[nn.Parameter]) -> nn.Parameter:
    return nn.Parameter(stored.to(like[0].dtype), requires_grad=any(factor.requires_grad for factor in like))


def _moduli(squares: Tensor, field: str) -> Tensor:
    """E|G|^2 from the mean squares of real and imaginary parts."""
    return squares.sum(-3) if field == "complex" else squares


def _planes(squares: Tensor, field: str) -> Tensor:
    """The inverse of `_moduli`, equal for both parts."""
    return torch.stack([squares, squares], dim=-3) / 2 if field == "complex" else squares
