"""The nearest sum of Kronecker products to a given matrix."""

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from kru.linalg.factors import Shapes, check_rank, parse_factors
from kru.ops.kron.reference import kron

SWEEPS = 100
"""Maximum number of rounds over all factors."""
TOLERANCE = 1e-6
"""A round that lowers the relative error by less than this is the last one."""
CUTOFF = 1e-12
"""Directions in which a system of equations is weaker than this, against its strongest, are left out."""


class Nearest(NamedTuple):
    """What `nearest_kronecker` found: the factors, (P_f, Q_f) or (R, P_f, Q_f), and ||W - V|| / ||W||."""

    factors: list[Tensor]
    error: float


def nearest_kronecker(
    matrix: Tensor,
    factors: Sequence[int | tuple[int, int]],
    rank: int = 1,
    *,
    moments: Tensor | None = None,
) -> Nearest:
    """The sum V = sum_r ⊗_f V_rf of R Kronecker products that is nearest to a matrix W in the Frobenius norm.

    With its entries in another order, W is a tensor with one index (p_f, q_f) for each factor, and a Kronecker
    product is a product of vectors (Van Loan and Pitsianis, 1993). For two factors the tensor is a matrix, and its
    singular value decomposition gives the optimum. For more there is no such formula: each term starts from
    successive singular value decompositions of what the terms before leave, and alternating least squares then
    solve for one factor of all terms after the other. No round makes the error larger, but the end is a local
    optimum.

    Args:
        matrix: W (N, K), real or complex. Computed in double precision.
        factors: sizes of square factors or pairs (P_f, Q_f), with products N and K.
        rank: the number of terms R.
        moments: C (K, K), Hermitian and positive semidefinite: minimise tr (W - V) C (W - V)^H instead, for
            C = E x x^H the mean of |W x - V x|^2 over the inputs x that occur. Then two factors need alternating
            least squares as well, from the nearest sum in the Frobenius norm on; only low rank has a formula.

    Returns:
        the factors, (P_f, Q_f) or for R > 1 (R, P_f, Q_f), of W's dtype, all factors of a term of equal norm, the
        largest term first; and the relative error, with `moments` in their norm.

    ``[(N, 1), (1, K)]`` is the nearest matrix of low rank: a column times a row is a Kronecker product.

    >>> import torch, kru
    >>> a, b = torch.randn(3, 2), torch.randn(4, 5)
    >>> found = kru.nearest_kronecker(torch.kron(a, b), [(3, 2), (4, 5)])
    >>> torch.allclose(kru.kron_dense(found.factors), torch.kron(a, b), atol=1e-5)
    True
    >>> [tuple(f.shape) for f in kru.nearest_kronecker(torch.randn(12, 12), [2, 2, 3], rank=4).factors]
    [(4, 2, 2), (4, 2, 2), (4, 3, 3)]
    """
    check_rank(rank)
    if not isinstance(matrix, Tensor):
        raise TypeError(f"matrix: expected a tensor, got {type(matrix).__name__}")
    if matrix.dim() != 2 or 0 in matrix.shape:
        raise ValueError(f"matrix: expected shape (N, K), got {tuple(matrix.shape)}")
    shapes = parse_factors(factors, matrix.shape[0], matrix.shape[1], "N", "K")
    most = largest_rank(shapes)
    if rank > most:
        raise ValueError(
            f"rank: expected at most {most}, with which factors of these sizes give any matrix, got {rank}"
        )
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    with torch.no_grad():
        w = matrix.to(wide)
        if not w.isfinite().all():
            raise ValueError("matrix: expected finite entries, got some that are not")
        tensor = _rearranged(w, shapes)
        if moments is None:
            terms = _nearest_terms(tensor, rank)
            error = _relative(_residual(tensor, terms), tensor)
        else:
            weighted = _Weighted(w, shapes, _checked(moments, w))
            terms = _until_no_better(weighted.sweep, weighted.error, weighted.start(rank))
            error = weighted.error(terms)
        found = _balanced([term.reshape(rank, *shape) for term, shape in zip(terms, shapes, strict=True)])
    return Nearest([(f if rank > 1 else f[0]).to(matrix.dtype) for f in found], error)


def largest_rank(shapes: Shapes) -> int:
    """So many products of factors of these shapes sum to any matrix."""
    sizes = [p * q for p, q in shapes]
    return prod(sizes) // max(sizes)


def two_factor_errors(matrix: Tensor, shapes: Shapes) -> Tensor:
    """The relative errors of the nearest sums of 1, 2, ... products of two factors: all from one decomposition."""
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    squares: Tensor = torch.linalg.svdvals(_rearranged(matrix.detach().to(wide), shapes)).square()
    left = squares.sum() - squares.cumsum(0)
    return (left.clamp(min=0) / squares.sum().clamp(min=torch.finfo(torch.float64).tiny)).sqrt()


def _rearranged(w: Tensor, shapes: Shapes) -> Tensor:
    """W[p_0 p_1 ..., q_0 q_1 ...] as a tensor T[p_0 q_0, p_1 q_1, ...]."""
    count = len(shapes)
    split = w.reshape(*(p for p, _ in shapes), *(q for _, q in shapes))
    order = [axis for f in range(count) for axis in (f, count + f)]
    return split.permute(order).reshape([p * q for p, q in shapes])


def _nearest_terms(tensor: Tensor, rank: int) -> list[Tensor]:
    """Vectors (R, m_f) of each factor, whose products sum to nearly the tensor (m_0, m_1, ...)."""
    if tensor.dim() == 1:  # one factor is the matrix itself
        return [tensor.unsqueeze(0)]
    if tensor.dim() == 2:
        u, s, vh = torch.linalg.svd(tensor, full_matrices=False)
        return [(u * s).mT[:rank], vh[:rank]]
    terms = [tensor.new_zeros(0, size) for size in tensor.shape]
    for _ in range(rank):
        rest = _residual(tensor, terms)
        new = _alternate(rest, [vector.unsqueeze(0) for vector in _leading(rest)])
        terms = _alternate(tensor, [torch.cat(pair) for pair in zip(terms, new, strict=True)])
    return terms


def _leading(tensor: Tensor) -> list[Tensor]:
    """Vectors whose product is near the tensor: the first singular pair of its first index, then of the rest."""
    if tensor.dim() == 1:
        return [tensor]
    u, s, vh = torch.linalg.svd(tensor.flatten(1), full_matrices=False)
    return [u[:, 0], *_leading((s[0] * vh[0]).reshape(tensor.shape[1:]))]


def _alternate(tensor: Tensor, terms: list[Tensor]) -> list[Tensor]:
    """Alternating least squares from these terms on; never worse than they are."""

    def sweep(terms: list[Tensor]) -> list[Tensor]:
        terms = list(terms)
        for f, size in enumerate(tensor.shape):
            others = _rows(terms[:f] + terms[f + 1 :])
            target = tensor.movedim(f, 0).reshape(size, -1)
            terms[f] = (target @ others.mH @ _inverse(others @ others.mH)).mT
        return terms

    return _until_no_better(sweep, lambda terms: _relative(_residual(tensor, terms), tensor), terms)


class _Weighted:
    """Least squares for tr (W - V) C (W - V)^H, one factor of all terms at a time.

    In factor f, V[o i, o' j] = sum_r A_r[i, j] B_r[o, o'] is linear, with B_r the product of the other factors. The
    derivative vanishes where A G = D, as (P_f, R Q_f) matrices, with::

        D[i, r j] = sum_oo' conj(B_r[o, o']) (W C)[o i, o' j]
        G[s k, r j] = sum_oo' (B_r^H B_s)[o, o'] C[o' k, o j]

    Nothing larger than W, C and the products of the other factors' Gram matrices is ever built.
    """

    def __init__(self, w: Tensor, shapes: Shapes, moments: Tensor) -> None:
        self.w = w
        self.shapes = shapes
        self.moments = moments
        self.target = _rearranged(w @ moments, shapes)
        self.size = (w.conj() * (w @ moments)).sum().real.item()

    def start(self, rank: int) -> list[Tensor]:
        """The nearest terms in the Frobenius norm. For columns times rows the optimum: W projected onto the leading
        eigenvectors of W C W^H."""
        if [self.shapes[0][1], *(rows for rows, _ in self.shapes[1:])] != [1, 1]:
            return _nearest_terms(_rearranged(self.w, self.shapes), rank)
        vectors = torch.linalg.eigh(self.w @ self.moments @ self.w.mH).eigenvectors[:, -rank:]
        return [vectors.mT, vectors.mH @ self.w]

    def equations(self, terms: list[Tensor], f: int) -> tuple[Tensor, Tensor]:
        """G (R Q_f, R Q_f) and D (P_f, R Q_f), given vectors (R, P_g Q_g) of all factors."""
        rank = terms[0].shape[0]
        rows, columns = self.shapes[f]
        others = [g for g in range(len(terms)) if g != f]
        grams = [self._grams(terms[g], g) for g in others]
        gram = reduce(kron, grams, terms[0].new_ones(rank, rank, 1, 1)).flatten(2)  # (r, s, o o')
        sizes = [q for _, q in self.shapes]
        count = len(sizes)
        # C[o' k, o j] -> (o o', k j)
        order = [*(count + g for g in others), *others, f, count + f]
        swapped = self.moments.reshape(*sizes, *sizes).permute(order)
        products = gram @ swapped.reshape(-1, columns * columns)  # (r, s, k j)
        left = products.reshape(rank, rank, columns, columns).permute(1, 2, 0, 3).reshape(rank * columns, -1)
        target = self.target.movedim(f, 0).reshape(rows * columns, -1)
        rest = _rows([terms[g] for g in others]) if others else terms[0].new_ones(rank, 1)
        right = (target @ rest.mH).reshape(rows, columns, rank).movedim(2, 1).reshape(rows, -1)
        return left, right

    def sweep(self, terms: list[Tensor]) -> list[Tensor]:
        terms = list(terms)
        for f, (rows, columns) in enumerate(self.shapes):
            left, right = self.equations(terms, f)
            solved = right @ _inverse(left)
            terms[f] = solved.reshape(rows, -1, columns).movedim(1, 0).flatten(1)
        return terms

    def error(self, terms: list[Tensor]) -> float:
        """The square root of tr (W - V) C (W - V)^H over tr W C W^H."""
        left, right = self.equations(terms, 0)
        rows, columns = self.shapes[0]
        own = terms[0].reshape(-1, rows, columns).movedim(0, 1).reshape(rows, -1)
        inner = (own.conj() * (2 * right - own @ left)).sum().real.item()
        return sqrt(max(self.size - inner, 0.0) / self.size) if self.size > 0 else 0.0

    def _grams(self, term: Tensor, g: int) -> Tensor:
        """U_r^H U_s for all pairs of terms: (R, R, Q_g, Q_g)."""
        factor = term.reshape(-1, *self.shapes[g])
        return factor.mH.unsqueeze(1) @ factor.unsqueeze(0)


def _until_no_better(
    sweep: Callable[[list[Tensor]], list[Tensor]],
    measure: Callable[[list[Tensor]], float],
    factors: list[Tensor],
) -> list[Tensor]:
    """Sweeps while they lower the error; the best factors there were."""
    error = measure(factors)
    for _ in range(SWEEPS):
        candidate = sweep(factors)
        new = measure(candidate)
        if not new < error:
            break
        gain, factors, error = error - new, candidate, new
        if gain < TOLERANCE:
            break
    return factors


def _inverse(gram: Tensor) -> Tensor:
    """The inverse of a Hermitian matrix, or what comes nearest to one."""
    inverse: Tensor = torch.linalg.pinv(gram, hermitian=True, rtol=CUTOFF)
    return inverse


def _rows(terms: Sequence[Tensor]) -> Tensor:
    """The products of the vectors of each term, flat: (R, m_0 m_1 ...)."""
    rows = terms[0]
    for term in terms[1:]:
        rows = (rows.unsqueeze(2) * term.unsqueeze(1)).flatten(1)
    return rows


def _residual(tensor: Tensor, terms: list[Tensor]) -> Tensor:
    """What the sum of the terms' products leaves of the tensor."""
    if len(terms) == 1:
        return tensor - terms[0].sum(0)
    return tensor - (terms[0].mT @ _rows(terms[1:])).reshape(tensor.shape)


def _checked(moments: Tensor, w: Tensor) -> Tensor:
    """The moments in W's precision, if they are some."""
    size = w.shape[1]
    if not isinstance(moments, Tensor) or moments.shape != (size, size):
        got = tuple(moments.shape) if isinstance(moments, Tensor) else type(moments).__name__
        raise ValueError(f"moments: expected shape ({size}, {size}), got {got}")
    values = torch.linalg.eigvalsh(moments.to(w.dtype))
    if values[-1] <= 0 or values[0] < -1e-6 * values[-1]:
        raise ValueError(
            "moments: expected a positive semidefinite matrix, "
            f"got eigenvalues from {values[0]:.3g} to {values[-1]:.3g}"
        )
    return moments.to(w.dtype)


def _balanced(factors: list[Tensor]) -> list[Tensor]:
    """The same terms, all factors of one with equal norms, in the order of their sizes."""
    norms = torch.stack([factor.flatten(1).norm(dim=1) for factor in factors])  # (F, R)
    sizes = norms.prod(0)
    scale = torch.where(norms > 0, sizes ** (1 / len(factors)) / norms.clamp(min=1e-300), norms)
    order = sizes.argsort(descending=True)
    return [(factor * scale[f, :, None, None])[order] for f, factor in enumerate(factors)]


def _relative(difference: Tensor, whole: Tensor) -> float:
    size = whole.norm().item()
    return difference.norm().item() / size if size > 0 else 0.0
