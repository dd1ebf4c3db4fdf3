"""The Kronecker product on the GPU: device functions, which the recurrence uses as well, and two kernels.

Numbers are float32. Complex numbers come as two planes. An adjoint product takes the same factors, transposed and
conjugated on the way.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def load_entries(factors, COUNT: tl.constexpr, COMPLEX: tl.constexpr):
    """The entries of 2x2 factors (COUNT, planes, 2, 2) as a tuple of scalars."""
    entries = ()
    for i in tl.static_range(COUNT * (8 if COMPLEX else 4)):
        entries = entries + (tl.load(factors + i),)  # noqa: RUF005 (Triton knows no star)
    return entries


@triton.jit
def halves(v, L: tl.constexpr, R: tl.constexpr):
    """v[l, i, r] for i = 0 and i = 1."""
    return tl.split(tl.permute(tl.reshape(v, (L, 2, R)), (0, 2, 1)))


@triton.jit
def whole(a, b, L: tl.constexpr, R: tl.constexpr):
    """The inverse of `halves`."""
    return tl.reshape(tl.permute(tl.join(a, b), (0, 2, 1)), (L * 2 * R,))


@triton.jit
def mix(
    re,
    im,
    entries,
    f: tl.constexpr,
    L: tl.constexpr,
    R: tl.constexpr,
    COMPLEX: tl.constexpr,
    ADJOINT: tl.constexpr,
):
    """One factor of 2x2: y[l, i, r] = sum_j W[i, j] v[l, j, r]."""
    first: tl.constexpr = f * (8 if COMPLEX else 4)
    upper: tl.constexpr = first + (2 if ADJOINT else 1)
    lower: tl.constexpr = first + (1 if ADJOINT else 2)
    a, b = halves(re, L, R)
    y0 = entries[first] * a + entries[upper] * b
    y1 = entries[lower] * a + entries[first + 3] * b
    if COMPLEX:
        s: tl.constexpr = -1.0 if ADJOINT else 1.0
        c, d = halves(im, L, R)
        i0, i1, i2, i3 = (
            s * entries[first + 4],
            s * entries[upper + 4],
            s * entries[lower + 4],
            s * entries[first + 7],
        )
        z0 = entries[first] * c + entries[upper] * d + i0 * a + i1 * b
        z1 = entries[lower] * c + entries[first + 3] * d + i2 * a + i3 * b
        y0 -= i0 * c + i1 * d
        y1 -= i2 * c + i3 * d
        im = whole(z0, z1, L, R)
    return whole(y0, y1, L, R), im


@triton.jit
def butterfly(
    re, im, entries, N: tl.constexpr, COUNT: tl.constexpr, COMPLEX: tl.constexpr, ADJOINT: tl.constexpr
):
    """A row of N = 2^COUNT numbers, held in registers, times the product of all factors. If real, im is unused."""
    for f in tl.static_range(COUNT):
        re, im = mix(re, im, entries, f, 2**f, N // 2 ** (f + 1), COMPLEX, ADJOINT)
    return re, im


@triton.jit
def butterfly_kernel(
    factors, x, y, rows, x_row, x_plane, x_element, y_row, y_plane, y_element,
    N: tl.constexpr, COUNT: tl.constexpr, COMPLEX: tl.constexpr, ADJOINT: tl.constexpr,
):  # fmt: skip
    """y = x W^T for factors of 2x2. A program takes every so many-th row."""
    n = tl.arange(0, N)
    entries = load_entries(factors, COUNT, COMPLEX)
    first = tl.program_id(0).to(tl.int64)
    for row in range(first, rows, tl.num_programs(0)):
        source = x + row * x_row + n * x_element
        re = tl.load(source)
        im = tl.load(source + x_plane) if COMPLEX else re
        re, im = butterfly(re, im, entries, N, COUNT, COMPLEX, ADJOINT)
        target = y + row * y_row + n * y_element
        tl.store(target, re)
        if COMPLEX:
            tl.store(target + y_plane, im)


@triton.jit
def stage_tile(
    w, x, y, tile, rows, add, x_row, x_plane, x_element, y_row, y_plane, y_element,
    L: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr,
    COMPLEX: tl.constexpr, ADJOINT: tl.constexpr, ADDS: tl.constexpr,
    BP: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """A tile of y[row, l, p, r] = sum_q W[p, q] x[row, l, q, r], the columns of the tile being (row, l, r).

    w holds W of P x Q, with ADJOINT the matrix of Q x P whose adjoint W is; the second plane follows the first. With
    ADDS and `add`, y is added to.
    """
    tiles: tl.constexpr = (P + BP - 1) // BP
    p = (tile % tiles) * BP + tl.arange(0, BP)
    column = (tile // tiles) * BC + tl.arange(0, BC)
    row = column // (L * R)
    l = (column // R) % L  # noqa: E741 (as in the formula)
    r = column % R
    inside = row < rows
    source = x + row * x_row + (l * (Q * R) + r) * x_element
    target = y + (row * y_row + (l * (P * R) + r) * y_element)[None, :] + (p * R)[:, None] * y_element
    kept = (p < P)[:, None] & inside[None, :]
    re = tl.zeros((BP, BC), tl.float32)
    im = re
    if BC < 16:
        # Too few columns for the units that multiply matrices: all products of a tile, added up in the end.
        re_sum = tl.zeros((BP, BQ, BC), tl.float32)
        im_sum = re_sum
    for start in range(0, Q, BQ):
        q = start + tl.arange(0, BQ)
        w_at = w + ((q[None, :] * P + p[:, None]) if ADJOINT else (p[:, None] * Q + q[None, :]))
        x_at = source[None, :] + (q * R)[:, None] * x_element
        w_mask = (p < P)[:, None] & (q < Q)[None, :]
        x_mask = (q < Q)[:, None] & inside[None, :]
        w_re = tl.load(w_at, mask=w_mask, other=0.0)
        x_re = tl.load(x_at, mask=x_mask, other=0.0)
        if COMPLEX:
            w_im = tl.load(w_at + P * Q, mask=w_mask, other=0.0)
            x_im = tl.load(x_at + x_plane, mask=x_mask, other=0.0)
            if ADJOINT:
                w_im = -w_im
        if BC < 16:
            re_sum += w_re[:, :, None] * x_re[None, :, :]
            if COMPLEX:
                re_sum -= w_im[:, :, None] * x_im[None, :, :]
                im_sum += w_re[:, :, None] * x_im[None, :, :] + w_im[:, :, None] * x_re[None, :, :]
        else:
            re = tl.dot(w_re, x_re, re, input_precision="ieee")
            if COMPLEX:
                re = tl.dot(-w_im, x_im, re, input_precision="ieee")
                im = tl.dot(w_re, x_im, im, input_precision="ieee")
                im = tl.dot(w_im, x_re, im, input_precision="ieee")
    if BC < 16:
        re = tl.sum(re_sum, 1)
        if COMPLEX:
            im = tl.sum(im_sum, 1)
    if ADDS:
        re += tl.load(target, mask=kept & add, other=0.0)
        if COMPLEX:
            im += tl.load(target + y_plane, mask=kept & add, other=0.0)
    tl.store(target, re, mask=kept)
    if COMPLEX:
        tl.store(target + y_plane, im, mask=kept)


@triton.jit
def stage_kernel(
    w, x, y, rows, add, x_row, x_plane, x_element, y_row, y_plane, y_element,
    L: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr,
    COMPLEX: tl.constexpr, ADJOINT: tl.constexpr, ADDS: tl.constexpr,
    BP: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """One factor of any size, on all rows: a program takes a tile."""
    tile = tl.program_id(0).to(tl.int64)
    stage_tile(
        w, x, y, tile, rows, add != 0, x_row, x_plane, x_element, y_row, y_plane, y_element,
        L, P, Q, R, COMPLEX, ADJOINT, ADDS, BP, BQ, BC,
    )  # fmt: skip
