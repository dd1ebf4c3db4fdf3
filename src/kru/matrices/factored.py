"""Modules whose parameters are Kronecker factors, and how two of these become one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kru.factors import Shapes
from kru.matrices.reshaping import kron, merged_gradient, merged_square, to_matrices, to_stored
from kru.moments import Replacement
from kru.precision import computing_dtype


class Factored(nn.Module):
    """A module with the parameters `factor_0`, `factor_1`, ..., each a batch of matrices (..., P_f, Q_f).

    Attributes:
        shapes: rows and columns (P_f, Q_f) of each factor.
        field: "real", or "complex" for factors (..., 2, P_f, Q_f), real and imaginary parts.
    """

    shapes: Shapes
    field: str

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
    def merge_factors(self, i: int) -> Replacement:
        """Put W_i ⊗ W_{i+1} in the place of factors i and i + 1, as one factor of (P_i P_{i+1}, Q_i Q_{i+1})
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

        return Replacement(tuple(old), (merged,), averages, squares)

    def _replace_factors(self, i: int, count: int, new: Sequence[nn.Parameter]) -> None:
        """Put `new` in the place of `count` factors, the order of all parameters as in a module built so."""
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
        product = " ⊗ ".join(f"{rows}x{columns}" for rows, columns in shapes)
        wanted = f"0 <= i < {len(shapes) - 1}" if len(shapes) > 1 else "two factors at least"
        raise ValueError(f"i: expected {wanted} to merge factors i and i + 1 of {product}, got {i}")


def _parameter(stored: Tensor, *, like: Sequence[nn.Parameter]) -> nn.Parameter:
    return nn.Parameter(stored.to(like[0].dtype), requires_grad=any(factor.requires_grad for factor in like))


def _moduli(squares: Tensor, field: str) -> Tensor:
    """E|G|^2 from the mean squares of real and imaginary parts."""
    return squares.sum(-3) if field == "complex" else squares


def _planes(squares: Tensor, field: str) -> Tensor:
    """The inverse of `_moduli`, equal for both parts."""
    return torch.stack([squares, squares], dim=-3) / 2 if field == "complex" else squares
