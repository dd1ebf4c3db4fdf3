"""Neighbouring factors multiplied out into fewer, larger ones, and gradients of factors as matrix products.

For processors that multiply matrices faster than they start operations. Matrices here are real or complex tensors.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod

import torch
from torch import Tensor

from kru.ops.kron.reference import kron, terms_of

LARGEST = 64
"""Factors are merged into one matrix, or into two, while these have up to about this many rows."""
SMALL = 32
"""Factors for which two matrices would be too large are merged into several of up to this many rows."""
CHUNK = 1 << 25
"""So many numbers of x or dy at a time for the gradients of factors: intermediate results are as large."""


def grouping(shapes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which neighbouring factors are merged: the first of each group and the one after its last.

    One matrix, or else two with the least work, unless they are larger than `LARGEST` and take more than twice the
    work of the factors one by one; else as many as it takes with up to `SMALL` rows and columns.

    >>> grouping([(2, 2)] * 5), grouping([(2, 2)] * 9), grouping([(2, 2)] * 16)
    ([(0, 5)], [(0, 4), (4, 9)], [(0, 5), (5, 10), (10, 15), (15, 16)])
    """
    count = len(shapes)

    def side(first: int, end: int) -> int:
        return max(prod(shape[axis] for shape in shapes[first:end]) for axis in (0, 1))

    if count == 1 or side(0, count) <= LARGEST:
        return [(0, count)]
    work, middle = min((side(0, middle) + side(middle, count), middle) for middle in range(1, count))
    if work <= max(2 * LARGEST, 2 * sum(max(shape) for shape in shapes)):
        return [(0, middle), (middle, count)]
    groups = [(0, 1)]
    for f in range(1, count):
        first, _ = groups[-1]
        if side(first, f + 1) <= SMALL:
            groups[-1] = (first, f + 1)
        else:
            groups.append((f, f + 1))
    return groups


def merge(factors: Sequence[Tensor]) -> list[Tensor]:
    """The factors (..., P_f, Q_f) as few larger ones with the same product."""
    shapes = [(factor.shape[-2], factor.shape[-1]) for factor in factors]
    return [reduce(kron, factors[first:end]) for first, end in grouping(shapes)]


def stages(
    shapes: Sequence[tuple[int, int]], *, adjoint: bool = False
) -> list[tuple[int, int, int, int, int]]:
    """(f, L, P, Q, R) of each product y[l, p, r] = sum_q W_f[p, q] x[l, q, r], the last factor's first.

    >>> stages([(2, 3), (5, 4)])
    [(1, 3, 5, 4, 1), (0, 1, 2, 3, 5)]
    """
    if adjoint:
        shapes = [(q, p) for p, q in shapes]
    return [
        (f, prod(q for _, q in shapes[:f]), *shapes[f], prod(p for p, _ in shapes[f + 1 :]))
        for f in reversed(range(len(shapes)))
    ]


def factor_gradients(x: Tensor, dy: Tensor, factors: Sequence[Tensor], wants: Sequence[bool]) -> list[Tensor]:
    """The gradients of the wanted factors (P_f, Q_f) or (R, P_f, Q_f) of y = x W^T, for x (M, K) and dy (M, N).

    A gradient sums over all M rows, so it is a matrix product: first for the merged factors, from whose gradients those
    of the factors follow.
    """
    if not any(wants):
        return []
    of_terms = [_term_gradients(x, dy, list(term), wants) for term in terms_of(factors)]
    if factors[0].dim() == 2:
        return of_terms[0]
    return [torch.stack(gradients) for gradients in zip(*of_terms, strict=True)]


def _term_gradients(x: Tensor, dy: Tensor, factors: list[Tensor], wants: Sequence[bool]) -> list[Tensor]:
    groups = grouping([(factor.shape[0], factor.shape[1]) for factor in factors])
    merged = merge(factors)
    totals = {
        g: torch.zeros_like(merged[g]) for g, (first, end) in enumerate(groups) if any(wants[first:end])
    }
    rows = max(1, CHUNK // max(x.shape[1], dy.shape[1]))
    for x_rows, dy_rows in zip(torch.split(x, rows), torch.split(dy, rows), strict=True):
        if len(x_rows):
            _add_gradients(x_rows, dy_rows, merged, totals)
    return [
        _entry_gradient(totals[g], factors[first:end], f - first)
        for g, (first, end) in enumerate(groups)
        for f in range(first, end)
        if wants[f]
    ]


def _add_gradients(x: Tensor, dy: Tensor, merged: list[Tensor], totals: dict[int, Tensor]) -> None:
    """Add what some rows contribute to the gradients of merged factors."""
    inputs: dict[int, Tensor] = {}
    steps = stages([(matrix.shape[0], matrix.shape[1]) for matrix in merged])
    for f, _, _, q, right in steps:
        inputs[f] = x.reshape(-1, q, right)
        if f == min(totals):
            break
        x = merged[f] @ inputs[f]
    for f, _, p, _, right in reversed(steps):
        dy = dy.reshape(-1, p, right)
        if f in totals:
            columns = inputs[f].transpose(0, 1).flatten(1)
            totals[f] += dy.transpose(0, 1).flatten(1) @ columns.mH
        if f == max(totals):
            break
        dy = merged[f].mH @ dy


def _entry_gradient(total: Tensor, factors: Sequence[Tensor], place: int) -> Tensor:
    """The gradient of one of several neighbouring factors from that of their product."""
    one = total.new_ones(1, 1)
    before, after = reduce(kron, factors[:place], one), reduce(kron, factors[place + 1 :], one)
    p, q = factors[place].shape
    blocks = total.reshape(before.shape[0], p, after.shape[0], before.shape[1], q, after.shape[1])
    return torch.einsum("apbcqd,ac,bd->pq", blocks, before.conj(), after.conj())
