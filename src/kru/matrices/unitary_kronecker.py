"""Kronecker factors that are exactly unitary, by the Cayley transform of skew-Hermitian matrices."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kru.linalg.factors import Shapes
from kru.linalg.unitary import initial_factor
from kru.matrices.base import RecurrentMatrix
from kru.matrices.factor_pairs import (
    nearest_pair,
    nearest_unitary,
    relative_error,
    to_matrices,
    to_stored,
)
from kru.matrices.factored import expect_neighbours
from kru.matrices.moments import Replacement
from kru.matrices.triangle import lower_triangle, skew_symmetric
from kru.ops.kron.reference import kron
from kru.ops.precision import computing_dtype, without_autocast


class UnitaryKroneckerMatrix(RecurrentMatrix):
    """W = W_0 ⊗ ... ⊗ W_{F-1} with every factor unitary (real field: orthogonal) by construction.

    Factor f is ``W_f = (I - S/2)^-1 (I + S/2) V_f``, where S is skew-Hermitian (S^H = -S) and V_f the unitary
    matrix that was drawn at the start. The parameter `skew_f` holds the free entries of S, as many as the set
    of unitary n x n matrices has dimensions: n^2, or n(n - 1)/2 in the real field; it starts at zero, where
    the map has the same derivative as the matrix exponential. V_f is the buffer `base_f`.

    The transform keeps the determinant of V_f in the real field, and is computed by real arithmetic in both,
    on all factors of one size at once.

    >>> import torch
    >>> matrix = UnitaryKroneckerMatrix(((2, 2), (3, 3)), field="complex", dtype=torch.float64)
    >>> _ = torch.nn.init.normal_(matrix.skew_1)
    >>> w = matrix.dense_factors()[1]
    >>> torch.allclose(w.mH @ w, torch.eye(3, dtype=w.dtype))
    True
    """

    base_0: Tensor

    def __init__(
        self,
        shapes: Shapes,
        *,
        field: str,
        gates: int = 1,
        init: str = "haar",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(shapes, field=field, gates=gates, constraint="exact")
        if not self.is_square:
            rows, columns = next(shape for shape in shapes if shape[0] != shape[1])
            raise ValueError(
                f'constraint: expected "none" with rectangular factors, got "exact": '
                f"a {rows} x {columns} matrix can't be unitary"
            )
        self.init = init
        each = (gates,) if gates > 1 else ()
        planes = (2,) if field == "complex" else ()
        for f, (size, _) in enumerate(shapes):
            skew = torch.empty(*each, free_entries(size, field), device=device, dtype=dtype)
            base = torch.empty(*each, *planes, size, size, device=device, dtype=dtype)
            self.register_parameter(f"skew_{f}", nn.Parameter(skew))
            self.register_buffer(f"base_{f}", base)
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.base_0.dtype)
        sizes = [size for size, _ in self.shapes]
        factors: dict[int, Tensor] = {}
        with without_autocast(self.base_0.device.type):
            for size in sorted(set(sizes)):
                same = [f for f, other in enumerate(sizes) if other == size]
                skew = torch.stack([getattr(self, f"skew_{f}") for f in same])
                base = torch.stack([getattr(self, f"base_{f}") for f in same])
                if dtype != base.dtype:
                    skew, base = skew.to(dtype), polished(base.to(dtype), self.field)
                unitary = cayley(skew, base, field=self.field)
                factors |= dict(zip(same, unitary.unbind(0), strict=True))
        return [factors[f] for f in range(len(sizes))]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        for f, (size, _) in enumerate(self.shapes):
            base = getattr(self, f"base_{f}")
            drawn = initial_factor(size, size, field=self.field, method=self.init, count=self.gates)
            base.copy_(drawn.reshape(base.shape))
            getattr(self, f"skew_{f}").zero_()

    def parameters_with(self, shapes: Shapes) -> int:
        return self.gates * sum(free_entries(size, self.field) for size, _ in shapes)

    @torch.no_grad()
    def merge_factors(self, i: int) -> list[Replacement]:
        """Make one factor of two: V = W_i ⊗ W_{i+1}, which is unitary, and S = 0 there.

        The free entries of S are coordinates around another V now, so an optimiser starts anew with them.
        """
        expect_neighbours(i, self.shapes)
        a, b = (to_matrices(factor, self.field) for factor in self.factors()[i : i + 2])
        return [self._replace_factors(i, 2, [to_stored(kron(a, b))])]

    @torch.no_grad()
    def split_factor(self, i: int, shapes: Shapes) -> tuple[list[Replacement], Tensor]:
        """Replace factor i by unitary factors: those nearest to the factors of the nearest product."""
        if any(rows != columns for rows, columns in shapes):
            raise ValueError(f'split: expected square factors with constraint="exact", got {shapes}')
        c = to_matrices(self.factors()[i], self.field)
        a, b = map(nearest_unitary, nearest_pair(c, shapes))
        return [self._replace_factors(i, 1, [to_stored(a), to_stored(b)])], relative_error(c, a, b)

    def add_terms(self, count: int) -> list[Replacement]:
        raise ValueError(
            'raise_rank: expected constraint="soft" or "none", got "exact": a sum of unitary matrices is not unitary'
        )

    def _replace_factors(self, i: int, count: int, new: Sequence[Tensor]) -> Replacement:
        """Replace `count` factors by factors V with S = 0."""
        skews = [getattr(self, f"skew_{f}") for f in range(len(self.shapes))]
        bases = [getattr(self, f"base_{f}") for f in range(len(self.shapes))]
        old, like = tuple(skews[i : i + count]), bases[i]
        for f in range(len(self.shapes)):
            delattr(self, f"skew_{f}")
            delattr(self, f"base_{f}")
        sizes = [base.shape[-1] for base in new]
        each = like.shape[:1] if self.gates > 1 else ()
        added = tuple(
            nn.Parameter(like.new_zeros(*each, free_entries(size, self.field)), old[0].requires_grad)
            for size in sizes
        )
        skews[i : i + count] = added
        bases[i : i + count] = [base.to(like.dtype) for base in new]
        for f, (skew, base) in enumerate(zip(skews, bases, strict=True)):
            self.register_parameter(f"skew_{f}", skew)
            self.register_buffer(f"base_{f}", base)
        self.shapes = tuple((base.shape[-1], base.shape[-1]) for base in bases)
        return Replacement(old, added)


def free_entries(size: int, field: str) -> int:
    """Dimensions of the unitary (real: orthogonal) n x n matrices."""
    return size * size if field == "complex" else size * (size - 1) // 2


def cayley(skew: Tensor, base: Tensor, *, field: str) -> Tensor:
    """(I - S/2)^-1 (I + S/2) V for matrices V, unitary where V is.

    Args:
        skew: free entries of S: (..., n(n - 1)/2) below the diagonal in the real field; in the complex field
            (..., n^2), those of the real part followed by the n(n + 1)/2 of the imaginary part on and below
            it.
        base: V, (..., n, n), or complex (..., 2, n, n).

    A complex matrix A + iB acts on stacked real and imaginary parts as [[A, -B], [B, A]], so one real solve
    does both fields: compilers, autocast and devices without complex arithmetic can follow.
    """
    size = base.shape[-1]
    strict = size * (size - 1) // 2
    generator = skew_symmetric(skew[..., :strict], size)
    right = base
    if field == "complex":
        lower = lower_triangle(skew[..., strict:], size, size)
        generator = _embedded(generator, lower + lower.tril(-1).mT)
        right = base.flatten(-3, -2)
    half = generator / 2
    eye = torch.eye(half.shape[-1], dtype=half.dtype, device=half.device)
    return _solved(eye - half, right + half @ right).reshape(base.shape)


def _solved(left: Tensor, right: Tensor) -> Tensor:
    """A^-1 B for matrices A (..., n, n), B (..., n, m), one after the other.

    A batch of larger matrices is factored in several threads by torch at once, which MKL does not support: wrong
    results or a RuntimeError (pytorch/pytorch#142815).
    """
    pairs = zip(left.flatten(0, -3), right.flatten(0, -3), strict=True) if left.ndim > 2 else [(left, right)]
    return torch.stack([torch.linalg.solve(a, b) for a, b in pairs]).reshape(right.shape)


def _embedded(re: Tensor, im: Tensor) -> Tensor:
    """[[A, -B], [B, A]]"""
    return torch.cat([torch.cat([re, -im], dim=-1), torch.cat([im, re], dim=-1)], dim=-2)


def polished(base: Tensor, field: str) -> Tensor:
    """The unitary matrix that was rounded to a coarser type, to the precision of this one.

    Two steps of V <- V (3 I - V^H V) / 2, each of which squares the distance from the unitary matrices:
    bfloat16 is 0.004 away, which over a thousand time steps would be a factor of 50.
    """
    matrix = _embedded(*base.unbind(-3)) if field == "complex" else base
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(2):
        matrix = matrix @ (1.5 * eye - 0.5 * (matrix.mT @ matrix))
    return matrix[..., : base.shape[-1]].reshape(base.shape)
