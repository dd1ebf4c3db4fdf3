"""The Elman recurrence for factors of any size on the GPU: a program takes a few sequences and all their steps.

States and intermediate results lie in global memory, small enough to stay in the caches, and the factors stream by in
tiles. A thread reads what others have written, so a barrier follows whatever is written. The kernels must be compiled
with num_stages=1: Triton's pipeliner would fetch the state of the next step before it is computed.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from kru.ops.kron.triton_kernels import stage_tile
from kru.ops.scan.triton_functions import elman_gradient, elman_step


@triton.jit
def one_factor(
    weights, matrix, x, y, rows, add, STAGES: tl.constexpr, s: tl.constexpr, X_ROW: tl.constexpr,
    Y_ROW: tl.constexpr, BB: tl.constexpr, COMPLEX: tl.constexpr, ADJOINT: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """All tiles of the product with one factor. A stage is (offset in the weights, L, P, Q, R, BP, BQ, BC)."""
    planes: tl.constexpr = 2 if COMPLEX else 1
    L: tl.constexpr = STAGES[s][1]
    P: tl.constexpr = STAGES[s][2]
    Q: tl.constexpr = STAGES[s][3]
    R: tl.constexpr = STAGES[s][4]
    BP: tl.constexpr = STAGES[s][5]
    BC: tl.constexpr = STAGES[s][7]
    w = weights + STAGES[s][0] + matrix * (planes * P * Q)
    for tile in range(((P + BP - 1) // BP) * ((BB * L * R + BC - 1) // BC)):
        stage_tile(
            w, x, y, tile, rows, add, planes * X_ROW, X_ROW, 1, planes * Y_ROW, Y_ROW, 1,
            L, P, Q, R, COMPLEX, ADJOINT, ADDS, BP, STAGES[s][6], BC,
        )  # fmt: skip


@triton.jit
def product(
    weights, source, source_gate, between, target, target_gate, rows, STAGES: tl.constexpr, TERMS: tl.constexpr,
    GATES: tl.constexpr, N: tl.constexpr, W: tl.constexpr, BB: tl.constexpr, COMPLEX: tl.constexpr,
    ADJOINT: tl.constexpr,
):  # fmt: skip
    """Gate g of the source (BB, S) times the matrix of gate g: written to the target's gates, or, adjoint, added up.

    A row of intermediate results has up to W numbers a plane; there are two buffers for them.
    """
    for matrix in range(TERMS * GATES):
        gate = matrix % GATES
        for s in tl.static_range(len(STAGES)):
            x = source + gate * source_gate
            y = target + gate * target_gate
            if s > 0:
                x = between + ((s + 1) % 2) * (BB * W * (2 if COMPLEX else 1))
            if s < len(STAGES) - 1:
                y = between + (s % 2) * (BB * W * (2 if COMPLEX else 1))
            one_factor(
                weights, matrix, x, y, rows, ADJOINT or matrix >= GATES, STAGES, s, N if s == 0 else W,
                N if s == len(STAGES) - 1 else W, BB, COMPLEX, ADJOINT,
                s == len(STAGES) - 1 and (ADJOINT or TERMS > 1),
            )  # fmt: skip
            tl.debug_barrier()


@triton.jit
def steps_of(lengths, sequence, inside, steps, LENGTHS: tl.constexpr):
    """The number of steps of some sequences: whatever the tensor holds, one that the memory has."""
    length = tl.where(inside, steps, 0)
    if LENGTHS:
        length = tl.load(lengths + sequence, mask=inside, other=0).to(tl.int32)
        length = tl.minimum(tl.maximum(length, 0), steps)
    return length


@triton.jit
def longest_of(lengths, first, batch, steps, BB: tl.constexpr, LENGTHS: tl.constexpr):
    sequence = first + tl.arange(0, BB)
    return tl.max(steps_of(lengths, sequence, sequence < batch, steps, LENGTHS), 0)


@triton.jit
def places(
    start, step, first, batch, lengths, steps, N: tl.constexpr, BB: tl.constexpr, BLOCK: tl.constexpr,
    REVERSE: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """Of some numbers of a block of rows: row, unit, sequence, whether this has such a step, and t * B + sequence."""
    e = start + tl.arange(0, BLOCK)
    row = e // N
    sequence = first + row
    length = steps_of(lengths, sequence, (row < BB) & (sequence < batch), steps, LENGTHS)
    t = length - 1 - step if REVERSE else length * 0 + step
    return row, e % N, sequence, step < length, t * batch + sequence


@triton.jit
def restart(
    step, first, batch, lengths, steps, anew, initial, h, N: tl.constexpr, S: tl.constexpr, BB: tl.constexpr,
    BLOCK: tl.constexpr, REVERSE: tl.constexpr, LENGTHS: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """Where a sequence begins, the state is the initial one."""
    for plane in tl.static_range(S // N):
        for start in range(0, BB * N, BLOCK):
            _, n, sequence, active, place = places(
                start, step, first, batch, lengths, steps, N, BB, BLOCK, REVERSE, LENGTHS
            )
            begins = active & (tl.load(anew + place, mask=active, other=0) != 0)
            value = tl.zeros((BLOCK,), tl.float32)
            if INITIAL:
                value = tl.load(initial + plane * N + n)
            tl.store(h + sequence * S + plane * N + n, value, mask=begins)


@triton.jit
def end_at_reset(
    step, first, batch, lengths, steps, anew, g, dinitial, N: tl.constexpr, S: tl.constexpr, BB: tl.constexpr,
    BLOCK: tl.constexpr, REVERSE: tl.constexpr, LENGTHS: tl.constexpr, DINITIAL: tl.constexpr,
):  # fmt: skip
    """What has been carried to a reset belongs to the initial state; nothing goes on to the step before."""
    for plane in tl.static_range(S // N):
        for start in range(0, BB * N, BLOCK):
            _, n, sequence, active, place = places(
                start, step, first, batch, lengths, steps, N, BB, BLOCK, REVERSE, LENGTHS
            )
            begins = active & (tl.load(anew + place, mask=active, other=0) != 0)
            at = sequence * S + plane * N + n
            if DINITIAL:
                sum_ = tl.load(dinitial + at, mask=begins, other=0.0)
                tl.store(dinitial + at, sum_ + tl.load(g + at, mask=begins, other=0.0), mask=begins)
            tl.store(g + at, tl.zeros((BLOCK,), tl.float32), mask=begins)


@triton.jit
def elman_forward(
    weights, part, bias, leak, lengths, anew, initial, states, h, scratch, steps, batch,
    STAGES: tl.constexpr, TERMS: tl.constexpr, N: tl.constexpr, W: tl.constexpr, BB: tl.constexpr,
    BLOCK: tl.constexpr, COMPLEX: tl.constexpr, SIGMA: tl.constexpr, REVERSE: tl.constexpr, BIAS: tl.constexpr,
    LEAK: tl.constexpr, LENGTHS: tl.constexpr, RESET: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """h (B, S) holds the initial states, then the carried ones, in the end the last."""
    first = tl.program_id(0).to(tl.int64) * BB
    S: tl.constexpr = N * (2 if COMPLEX else 1)
    z = scratch + first * (S + 2 * W * (2 if COMPLEX else 1))
    between = z + BB * S
    rows = tl.minimum(batch - first, BB)
    for step in range(longest_of(lengths, first, batch, steps, BB, LENGTHS)):
        if RESET:
            restart(
                step,
                first,
                batch,
                lengths,
                steps,
                anew,
                initial,
                h,
                N,
                S,
                BB,
                BLOCK,
                REVERSE,
                LENGTHS,
                INITIAL,
            )
            tl.debug_barrier()
        product(weights, h + first * S, 0, between, z, 0, rows, STAGES, TERMS, 1, N, W, BB, COMPLEX, False)
        for start in range(0, BB * N, BLOCK):
            row, n, sequence, active, place = places(
                start, step, first, batch, lengths, steps, N, BB, BLOCK, REVERSE, LENGTHS
            )
            own = z + row * S + n
            re = tl.load(own, mask=active, other=0.0) + tl.load(part + place * S + n, mask=active, other=0.0)
            im = re
            if COMPLEX:
                im = tl.load(own + N, mask=active, other=0.0)
                im += tl.load(part + place * S + N + n, mask=active, other=0.0)
            b = tl.load(bias + n) if BIAS else tl.zeros((BLOCK,), tl.float32)
            rate = b
            h_re = re
            h_im = re
            carried = h + sequence * S + n
            if LEAK:
                rate = tl.load(leak + n)
                h_re = tl.load(carried, mask=active, other=0.0)
                if COMPLEX:
                    h_im = tl.load(carried + N, mask=active, other=0.0)
            re, im = elman_step(re, im, h_re, h_im, b, rate, SIGMA, COMPLEX, LEAK)
            tl.store(carried, re, mask=active)
            tl.store(states + place * S + n, re, mask=active)
            if COMPLEX:
                tl.store(carried + N, im, mask=active)
                tl.store(states + place * S + N + n, im, mask=active)
        tl.debug_barrier()


@triton.jit
def elman_backward(
    weights, z, before, bias, leak, dstates, lengths, anew, dz, g, dbias, dleak, dinitial, scratch, steps, batch,
    STAGES: tl.constexpr, TERMS: tl.constexpr, N: tl.constexpr, W: tl.constexpr, BB: tl.constexpr,
    BLOCK: tl.constexpr, COMPLEX: tl.constexpr, SIGMA: tl.constexpr, REVERSE: tl.constexpr, BIAS: tl.constexpr,
    LEAK: tl.constexpr, LENGTHS: tl.constexpr, RESET: tl.constexpr, DSTATES: tl.constexpr, DBIAS: tl.constexpr,
    DLEAK: tl.constexpr, DINITIAL: tl.constexpr,
):  # fmt: skip
    """dz (T, B, S), which may be z; g (B, S), which holds dh and in the end dh0; sums that start as zeros."""
    first = tl.program_id(0).to(tl.int64) * BB
    S: tl.constexpr = N * (2 if COMPLEX else 1)
    now = scratch + first * (S + 2 * W * (2 if COMPLEX else 1))
    between = now + BB * S
    rows = tl.minimum(batch - first, BB)
    longest = longest_of(lengths, first, batch, steps, BB, LENGTHS)
    for back in range(longest):
        step = longest - 1 - back
        for start in range(0, BB * N, BLOCK):
            row, n, sequence, active, place = places(
                start, step, first, batch, lengths, steps, N, BB, BLOCK, REVERSE, LENGTHS
            )
            at = place * S + n
            carried = g + sequence * S + n
            re = tl.load(z + at, mask=active, other=0.0)
            g_re = tl.load(carried, mask=active, other=0.0)
            if DSTATES:
                g_re += tl.load(dstates + at, mask=active, other=0.0)
            b = tl.load(bias + n) if BIAS else tl.zeros((BLOCK,), tl.float32)
            rate = tl.load(leak + n) if LEAK else b
            h_re = tl.load(before + at, mask=active, other=0.0) if LEAK else re
            im = re
            g_im = g_re
            h_im = h_re
            if COMPLEX:
                im = tl.load(z + at + N, mask=active, other=0.0)
                g_im = tl.load(carried + N, mask=active, other=0.0)
                if DSTATES:
                    g_im += tl.load(dstates + at + N, mask=active, other=0.0)
                if LEAK:
                    h_im = tl.load(before + at + N, mask=active, other=0.0)
            dz_re, dz_im, db, dl = elman_gradient(
                re, im, h_re, h_im, b, rate, g_re, g_im, SIGMA, COMPLEX, LEAK
            )
            # A sequence that has ended takes no part: zeros go into the product, and what it carries stays.
            own = now + row * S + n
            tl.store(own, tl.where(active, dz_re, 0.0), mask=row < rows)
            tl.store(dz + at, dz_re, mask=active)
            tl.store(carried, g_re - rate * g_re if LEAK else g_re * 0.0, mask=active)
            if COMPLEX:
                tl.store(own + N, tl.where(active, dz_im, 0.0), mask=row < rows)
                tl.store(dz + at + N, dz_im, mask=active)
                tl.store(carried + N, g_im - rate * g_im if LEAK else g_im * 0.0, mask=active)
            sum_at = sequence * N + n
            if DBIAS:
                tl.store(dbias + sum_at, tl.load(dbias + sum_at, mask=active, other=0.0) + db, mask=active)
            if DLEAK:
                tl.store(dleak + sum_at, tl.load(dleak + sum_at, mask=active, other=0.0) + dl, mask=active)
        tl.debug_barrier()
        product(weights, now, 0, between, g + first * S, 0, rows, STAGES, TERMS, 1, N, W, BB, COMPLEX, True)
        if RESET:
            end_at_reset(
                step,
                first,
                batch,
                lengths,
                steps,
                anew,
                g,
                dinitial,
                N,
                S,
                BB,
                BLOCK,
                REVERSE,
                LENGTHS,
                DINITIAL,
            )
            tl.debug_barrier()
