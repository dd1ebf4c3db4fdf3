"""The interface of all recurrent matrices, used by layers, penalty, spectrum and optimiser."""

import torch
from torch import Tensor, nn

from kru.linalg.factors import Shapes, product_text
from kru.matrices.moments import Replacement
from kru.ops.sharded import with_whole_parameters

CONSTRAINTS = ("soft", "exact", "none")


class RecurrentMatrix(nn.Module):
    """A recurrent matrix W = W_0 ⊗ ... ⊗ W_{F-1}, or a sum of `rank` such products, one per gate, with its own
    parametrisation.

    A subclass registers parameters and computes the factors from them in `factors`. All its parameters count as
    recurrent: for the learning rate, the parameter count and `train_recurrent`.

    Attributes:
        shapes: rows and columns (P_f, Q_f) of each factor.
        field: "real" or "complex".
        gates: number of matrices of these shapes.
        rank: number of Kronecker products in the sum W. With more than one, each factor has a leading dimension
            over the terms: `factors()[f][r]` is factor f of term r.
        constraint: "soft": the unitary penalty applies; "exact": unitary by construction; "none": neither.
    """

    def __init__(self, shapes: Shapes, *, field: str, gates: int, constraint: str, rank: int = 1) -> None:
        super().__init__()
        self.shapes = shapes
        self.field = field
        self.gates = gates
        self.rank = rank
        self.constraint = constraint

    def factors(self) -> list[Tensor]:
        """The factors as `kru.ops.scan` takes them: real (P, Q), complex (2, P, Q), gated (gates, P, Q).

        With rank R > 1 they are (R, P, Q), (R, 2, P, Q), (R, gates, P, Q).

        In float32 where the parameters are stored in half precision.
        """
        raise NotImplementedError

    @property
    def is_meta(self) -> bool:
        """Whether the parameters have shapes only, so that initial values would be drawn for nothing."""
        return any(parameter.is_meta for parameter in self.parameters())

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        raise NotImplementedError

    def parameters_with(self, shapes: Shapes) -> int:
        """How many parameters this matrix would have with factors of other shapes."""
        raise NotImplementedError

    def merge_factors(self, i: int) -> list[Replacement]:
        """Make one factor, W_i ⊗ W_{i+1}, of factors i and i + 1: the same W with more parameters."""
        raise TypeError(f"merge: expected a matrix with Kronecker factors, got {type(self).__name__}")

    def split_factor(self, i: int, shapes: Shapes) -> tuple[list[Replacement], Tensor]:
        """Replace factor i by the nearest Kronecker product; also return its errors, relative to the factor."""
        raise TypeError(f"split: expected a matrix with Kronecker factors, got {type(self).__name__}")

    def add_terms(self, count: int) -> list[Replacement]:
        """Make W a sum of `count` more Kronecker products, which contribute nothing yet."""
        raise TypeError(f"raise_rank: expected a matrix with Kronecker factors, got {type(self).__name__}")

    def whole_factors(self) -> list[Tensor]:
        """`factors()`, of parameters that are gathered first where they are sharded, see `kru.ops.sharded.whole`."""
        return with_whole_parameters(self, self.factors)

    def dense_factors(self, gate: int = 0) -> list[Tensor]:
        """The factors of one gate as ordinary matrices, real or complex, as for `kru.kron_dense`: (P, Q), or
        (R, P, Q) with rank R > 1."""
        factors = self.whole_factors()
        if self.field == "complex":
            return [torch.complex(*factor.unbind(-3)) for factor in factors]
        return [factor.select(-3, gate) if self.gates > 1 else factor for factor in factors]

    @property
    def is_square(self) -> bool:
        """Whether every factor is square. Otherwise W has no full rank and can't be unitary."""
        return all(rows == columns for rows, columns in self.shapes)

    def extra_repr(self) -> str:
        gates = f"{self.gates} x " if self.gates > 1 else ""
        terms = f", rank={self.rank}" if self.rank > 1 else ""
        product = product_text(self.shapes)
        return f"{gates}{product}{terms}, field={self.field}, constraint={self.constraint}"
