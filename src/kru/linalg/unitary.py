"""Unitary matrices: random and simple ones to start from, the distance of a matrix from them, and a map onto
them.

Matrices of the complex field are real tensors (..., 2, P, Q), real part first; matrices of the real field (...,
P, Q).
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kru.ops.bindings import transforming

INITIALISATIONS = ("haar", "identity", "diagonal")


def initial_factor(
    rows: int, columns: int, *, field: str = "complex", method: str = "haar", count: int = 1
) -> Tensor:
    """`count` starting matrices in double precision on the CPU: (count, P, Q) or, complex, (count, 2, P, Q).

    Args:
        method: "haar": uniformly distributed over the unitary (real: orthogonal) matrices; with more rows
            than columns over those with orthonormal columns, with fewer over those with orthonormal rows.
            "identity": ones on the diagonal. "diagonal": random phases exp(i theta) on the diagonal, in the
            real field random signs.

    >>> import torch
    >>> w = torch.complex(*initial_factor(3, 3)[0])
    >>> torch.allclose(w.mH @ w, torch.eye(3, dtype=w.dtype))
    True
    """
    if method not in INITIALISATIONS:
        raise ValueError(f"recurrent_init: expected one of {', '.join(INITIALISATIONS)}, got {method!r}")
    dtype = torch.complex128 if field == "complex" else torch.float64
    if method == "haar":
        matrix = _haar(rows, columns, count, dtype)
    else:
        matrix = torch.eye(rows, columns, dtype=dtype, device="cpu").repeat(count, 1, 1)
        if method == "diagonal":
            matrix = matrix * _phases(rows, count, dtype)
    return torch.stack([matrix.real, matrix.imag], dim=1) if field == "complex" else matrix


def _haar(rows: int, columns: int, count: int, dtype: torch.dtype) -> Tensor:
    tall, narrow = max(rows, columns), min(rows, columns)
    gaussian = torch.randn(count, tall, narrow, dtype=dtype, device="cpu")
    q: Tensor
    q, r = torch.linalg.qr(gaussian)
    # QR leaves each column's phase to the algorithm; giving R a positive diagonal makes Q uniformly
    # distributed.
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    q = q * torch.where(diagonal == 0, torch.ones_like(diagonal), torch.sgn(diagonal)).unsqueeze(-2)
    return q if rows >= columns else q.transpose(-2, -1)


def _phases(rows: int, count: int, dtype: torch.dtype) -> Tensor:
    """(count, rows, 1) random numbers of modulus one."""
    if dtype.is_complex:
        angle = 2 * torch.pi * torch.rand(count, rows, 1, dtype=torch.float64, device="cpu")
        return torch.polar(torch.ones_like(angle), angle)
    return 1 - 2 * torch.randint(0, 2, (count, rows, 1), device="cpu").to(dtype)


def gram_defect(matrix: Tensor, *, field: str) -> Tensor:
    """||W^H W - I||^2, the squared Frobenius norm, for each of a batch of matrices: (...).

    >>> import torch
    >>> gram_defect(2 * torch.eye(3), field="real")
    tensor(27.)
    """
    if field == "complex":
        re, im = matrix.unbind(-3)
        # For W = A + iB the Gram matrix is (A'A + B'B) + i(A'B - B'A); the second part is antisymmetric.
        gram = re.mT @ re + im.mT @ im
        cross = re.mT @ im
        rest = (cross - cross.mT).square().sum((-2, -1))
    else:
        gram = matrix.mT @ matrix
        rest = gram.new_zeros(())
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return (gram - eye).square().sum((-2, -1)) + rest


def sum_gram_defect(factors: Sequence[Tensor], *, field: str) -> Tensor:
    """||W^H W - I||^2 for W = sum_r ⊗_f W_rf, without building W: (...), for each of a batch of such sums.

    Args:
        factors: (R, ..., P_f, Q_f), or complex (R, ..., 2, P_f, Q_f).

    The Gram matrix is itself a sum of Kronecker products, W^H W = sum_rs ⊗_f A_rsf with A_rsf = W_rf^H W_sf, so that
    all inner products are products over the factors::

        ||W^H W||^2 = sum_rs,r's' prod_f <A_rsf, A_r's'f>        tr W^H W = sum_rs prod_f tr A_rsf

    R^4 small numbers instead of N^2. They are computed in strips of about `SUM_BLOCK`, again in the backward pass, so
    memory does not grow as R^4. Small differences of large sums are taken: computed in double precision.

    >>> import torch
    >>> half = torch.stack([torch.eye(2), torch.eye(2)]) / 2
    >>> sum_gram_defect([half, 2 * torch.eye(3).expand(2, 3, 3)], field="real")
    tensor(54.)
    """
    size = 1
    grams: list[_Parts] = []
    traces: _Parts | None = None
    for factor in factors:
        re, im = factor.double().unbind(-3) if field == "complex" else (factor.double(), None)
        size *= re.shape[-1]
        gram = _gram_pairs(re, im)
        trace = _trace(gram)
        traces = trace if traces is None else _times(traces, trace)
        grams.append(_flat(gram))
    assert traces is not None
    strips = _strips(grams[0][0])
    compute: Callable[..., Tensor] = _strip
    # The transforms of torch.func, which do without the saved graph, do not know checkpoints.
    if len(strips) > 1 and torch.is_grad_enabled() and not transforming():
        compute = partial(checkpoint, _strip, use_reentrant=False, preserve_rng_state=False)
    square = compute(grams, strips[0])
    for rows in strips[1:]:
        square = square + compute(grams, rows)
    return (square - 2 * traces[0].sum((0, 1)) + size).to(factors[0].dtype)


SUM_BLOCK = 1 << 20
"""How many numbers of the R^4 are computed at once."""

_Parts = tuple[Tensor, Tensor | None]
"""Real and imaginary parts; None for zeros."""


def _strips(gram: Tensor) -> list[slice]:
    """The R^2 pairs of a Gram matrix (R^2, ..., Q^2) in strips, each of at most `SUM_BLOCK` numbers if possible."""
    pairs = gram.shape[0]
    count = max(1, SUM_BLOCK // max(1, pairs * gram.shape[1:-1].numel()))
    return [slice(start, min(start + count, pairs)) for start in range(0, pairs, count)]


def _strip(grams: Sequence[_Parts], rows: slice) -> Tensor:
    """Of ||W^H W||^2, what the pairs in rows contribute, with themselves and with those after them: (...).

    The numbers of (p, q) and (q, p) are conjugates, so that only one of them is computed.
    """
    *others, last = [_inner(_part(gram, rows), _part(gram, slice(rows.start, None))) for gram in grams]
    real = last[0]
    if others:
        pairs = reduce(_times, others)
        real = pairs[0] * last[0]
        # Of the last product the real part alone: what no gradient flows through would stay in memory.
        if pairs[1] is not None and last[1] is not None:
            real = real - pairs[1] * last[1]
    count = rows.stop - rows.start
    return real[:, :count].sum((0, 1)) + 2 * real[:, count:].sum((0, 1))


def _gram_pairs(re: Tensor, im: Tensor | None) -> _Parts:
    """W_r^H W_s for all pairs of terms of W (R, ..., P, Q): (R, R, ..., Q, Q)."""
    left, right = re.mT.unsqueeze(1), re.unsqueeze(0)
    gram = left @ right
    if im is None:
        return gram, None
    left_im, right_im = im.mT.unsqueeze(1), im.unsqueeze(0)
    return gram + left_im @ right_im, left @ right_im - left_im @ right


def _part(gram: _Parts, pairs: slice) -> _Parts:
    re, im = gram
    return re[pairs], None if im is None else im[pairs]


def _flat(gram: _Parts) -> _Parts:
    """(R, R, ..., Q, Q) as (R^2, ..., Q^2)."""
    re, im = gram
    return re.flatten(0, 1).flatten(-2), None if im is None else im.flatten(0, 1).flatten(-2)


def _trace(gram: _Parts) -> _Parts:
    re, im = gram
    return re.diagonal(dim1=-2, dim2=-1).sum(-1), None if im is None else im.diagonal(dim1=-2, dim2=-1).sum(
        -1
    )


def _inner(a: _Parts, b: _Parts) -> _Parts:
    """sum_e conj(a[i, ..., e]) b[j, ..., e]: (i, j, ...)."""

    def products(left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum("i...e,j...e->ij...", left, right)

    if a[1] is None or b[1] is None:
        return products(a[0], b[0]), None
    return products(a[0], b[0]) + products(a[1], b[1]), products(a[0], b[1]) - products(a[1], b[0])


def _times(a: _Parts, b: _Parts) -> _Parts:
    if a[1] is None or b[1] is None:
        return a[0] * b[0], None
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
