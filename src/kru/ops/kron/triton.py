"""The Kronecker product on the Triton kernels: float32 and complex64.

Factors of 2x2 are applied to a row that stays in registers. All others are merged into few larger ones
(`kru.ops.kron.merged`), each of which takes one pass over the rows, in tiles.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from kru.ops import gpu
from kru.ops.bindings import dense
from kru.ops.kron import triton_kernels as kernels
from kru.ops.kron.merged import factor_gradients, merge, stages
from kru.ops.kron.reference import terms_of

LONGEST_ROW = 2048
"""Of the rows that are held in registers."""


class Rows(NamedTuple):
    """Real or complex rows in memory, with the strides of (row, plane, number)."""

    tensor: Tensor
    rows: int
    strides: tuple[int, int, int]


def rows_of(tensor: Tensor, size: int) -> Rows:
    """A contiguous tensor (..., size) as rows; complex numbers are stored in pairs."""
    planes = 2 if tensor.is_complex() else 1
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return Rows(values, tensor.numel() // size if size else 0, (planes * size, 1, planes))


def planar_rows(tensor: Tensor, size: int, planes: int) -> Rows:
    """A contiguous real tensor (..., planes * size) as rows of one or two planes."""
    return Rows(tensor, tensor.numel() // (planes * size), (planes * size, size, 1))


def is_butterfly(factors: Sequence[Tensor]) -> bool:
    """Whether the factors (P, Q) are all 2x2 and their product is small enough for a row to be held in registers."""
    return all(factor.shape == (2, 2) for factor in factors) and 2 ** len(factors) <= LONGEST_ROW


def planes_of(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Real or complex matrices (..., P, Q) as (..., planes, P, Q), the planes contiguous."""
    return [
        (
            torch.view_as_real(matrix.resolve_conj()).movedim(-1, -3)
            if matrix.is_complex()
            else matrix.unsqueeze(-3)
        )
        .resolve_neg()
        .contiguous()
        for matrix in matrices
    ]


def warps_of(size: int, programs: int, processors: int) -> int:
    """How many warps share a row of 2^k numbers. Fewer work better once there are enough rows for the whole GPU."""
    warps = min(16, max(1, size // 64))
    while programs > processors and warps > max(1, size // 256):
        warps, programs = warps // 2, programs // 2
    return warps


def multiply(x: Rows, y: Rows, factors: Sequence[Tensor], *, adjoint: bool) -> None:
    """y = x W^T, or with `adjoint` x conj(W), for factors (P, Q) or (R, P, Q), real or complex."""
    if not x.rows:
        return
    terms = list(terms_of(factors))
    if len(terms) == 1 and is_butterfly(terms[0]):
        _butterfly(x, y, terms[0], adjoint=adjoint)
        return
    for r, term in enumerate(terms):
        _stages(x, y, merge(term), adjoint=adjoint, add=r > 0)


def _butterfly(x: Rows, y: Rows, factors: Sequence[Tensor], *, adjoint: bool) -> None:
    count, entries = len(factors), torch.stack(planes_of(factors))
    processors = gpu.processors(x.tensor)
    warps = warps_of(2**count, x.rows, processors)
    programs = min(x.rows, processors * max(1, 32 // warps))
    with gpu.on_device(x.tensor):
        kernels.butterfly_kernel[(programs,)](
            entries, x.tensor, y.tensor, x.rows, *x.strides, *y.strides,
            N=2**count, COUNT=count, COMPLEX=entries.shape[1] == 2, ADJOINT=adjoint, num_warps=warps,
        )  # fmt: skip


def _stages(x: Rows, y: Rows, matrices: Sequence[Tensor], *, adjoint: bool, add: bool) -> None:
    shapes = [(matrix.shape[0], matrix.shape[1]) for matrix in matrices]
    weights, order = planes_of(matrices), stages(shapes, adjoint=adjoint)
    is_complex = matrices[0].is_complex()
    for f, left, p, q, right in order:
        last = f == 0
        target = y
        if not last:
            size = left * p * right
            between = torch.empty((x.rows, size), dtype=matrices[0].dtype, device=x.tensor.device)
            target = rows_of(between, size)
        tile = tile_of(p, q, x.rows * left * right)
        tiles = -(-p // tile["BP"]) * -(-x.rows * left * right // tile["BC"])
        with gpu.on_device(x.tensor):
            kernels.stage_kernel[(tiles,)](
                weights[f], x.tensor, target.tensor, x.rows, int(last and add), *x.strides, *target.strides,
                L=left, P=p, Q=q, R=right, COMPLEX=is_complex, ADJOINT=adjoint, ADDS=last and add,
                **tile, num_warps=4, num_stages=1,
            )  # fmt: skip
        x = target


def tile_of(p: int, q: int, columns: int) -> dict[str, int]:
    """Rows, depth and columns of a tile. The units that multiply matrices want at least 16 of each.

    With up to 8 columns, they are not used, and a tile is one of BP x BQ x BC products.
    """
    if columns > 8:
        return {"BP": 16 if p <= 16 else 32, "BQ": 16 if q <= 16 else 32, "BC": 16}
    width = 1 << (columns - 1).bit_length()
    deep = {1: 64, 2: 64, 4: 32, 8: 16}[width]
    return {"BP": 16 if p <= 16 else 32, "BQ": min(deep, max(2, 1 << (q - 1).bit_length())), "BC": width}


def forward(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    columns, size = (prod(factor.shape[dim] for factor in factors) for dim in (-1, -2))
    y = torch.empty((*x.shape[:-1], size), dtype=x.dtype, device=x.device)
    multiply(rows_of(dense(x), columns), rows_of(y, size), factors, adjoint=False)
    return y


def backward(dy: Tensor, x: Tensor, factors: Sequence[Tensor], wants: Sequence[bool]) -> list[Tensor]:
    """The wanted gradients, of x first and then of each factor; those not wanted are empty."""
    columns, size = x.shape[-1], dy.shape[-1]
    dy = dense(dy)
    out = [x.new_empty((0,)) for _ in wants]
    if wants[0]:
        out[0] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        multiply(rows_of(dy, size), rows_of(out[0], columns), factors, adjoint=True)
    rows = (
        (x.reshape(-1, columns), dy.reshape(-1, size))
        if dy.numel()
        else (x.new_empty(0, columns), x.new_empty(0, size))
    )
    gradients = iter(factor_gradients(*rows, factors, wants[1:]))
    return [
        out[0],
        *[next(gradients) if want else empty for want, empty in zip(wants[1:], out[1:], strict=True)],
    ]
