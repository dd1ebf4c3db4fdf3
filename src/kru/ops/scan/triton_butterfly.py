"""The Elman recurrence for factors of 2x2 on the GPU: a program per sequence, its state in registers, all steps inside.

The entries of the factors are loaded into scalars before the first step. Nothing that a step writes is read again.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from kru.ops.kron.triton_kernels import butterfly, load_entries
from kru.ops.scan.triton_functions import elman_gradient, elman_step


@triton.jit
def length_of(lengths, b, steps, LENGTHS: tl.constexpr):
    """The number of steps of sequence b: whatever the tensor holds, one that the memory has."""
    length = steps
    if LENGTHS:
        length = tl.load(lengths + b).to(tl.int32)
        length = tl.minimum(tl.maximum(length, 0), steps)
    return length


@triton.jit
def load_planes(pointer, n, N: tl.constexpr, COMPLEX: tl.constexpr, GIVEN: tl.constexpr):
    """Real and imaginary parts; zeros where nothing is given."""
    re = tl.load(pointer + n) if GIVEN else tl.zeros((N,), tl.float32)
    im = re
    if COMPLEX and GIVEN:
        im = tl.load(pointer + N + n)
    return re, im


@triton.jit
def store_planes(pointer, n, re, im, N: tl.constexpr, COMPLEX: tl.constexpr):
    tl.store(pointer + n, re)
    if COMPLEX:
        tl.store(pointer + N + n, im)


@triton.jit
def elman_forward(
    factors, part, bias, leak, h0, lengths, anew, initial, states, last, steps,
    N: tl.constexpr, COUNT: tl.constexpr, COMPLEX: tl.constexpr, SIGMA: tl.constexpr, REVERSE: tl.constexpr,
    BIAS: tl.constexpr, LEAK: tl.constexpr, H0: tl.constexpr, LENGTHS: tl.constexpr, RESET: tl.constexpr,
    INITIAL: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    batch = tl.num_programs(0).to(tl.int64)
    n = tl.arange(0, N)
    S: tl.constexpr = N * (2 if COMPLEX else 1)
    entries = load_entries(factors, COUNT, COMPLEX)
    inner = tl.load(bias + n) if BIAS else tl.zeros((N,), tl.float32)
    rate = tl.load(leak + n) if LEAK else inner
    re, im = load_planes(h0 + b * S, n, N, COMPLEX, H0)
    length = length_of(lengths, b, steps, LENGTHS)
    for step in range(length):
        t = length - 1 - step if REVERSE else step
        row = t.to(tl.int64) * batch + b
        a_re, a_im = load_planes(part + row * S, n, N, COMPLEX, True)
        if RESET:
            begins = tl.load(anew + row) != 0
            if begins:
                re, im = load_planes(initial, n, N, COMPLEX, INITIAL)
        z_re, z_im = butterfly(re, im, entries, N, COUNT, COMPLEX, False)
        z_re += a_re
        if COMPLEX:
            z_im += a_im
        re, im = elman_step(z_re, z_im, re, im, inner, rate, SIGMA, COMPLEX, LEAK)
        store_planes(states + row * S, n, re, im, N, COMPLEX)
    store_planes(last + b * S, n, re, im, N, COMPLEX)


@triton.jit
def elman_backward(
    factors, z, before, bias, leak, dstates, dh, lengths, anew, dz, dh0, dbias, dleak, dinitial, steps,
    N: tl.constexpr, COUNT: tl.constexpr, COMPLEX: tl.constexpr, SIGMA: tl.constexpr, REVERSE: tl.constexpr,
    BIAS: tl.constexpr, LEAK: tl.constexpr, LENGTHS: tl.constexpr, RESET: tl.constexpr, DSTATES: tl.constexpr,
    DH: tl.constexpr, DH0: tl.constexpr, DBIAS: tl.constexpr, DLEAK: tl.constexpr, DINITIAL: tl.constexpr,
):  # fmt: skip
    """dz (T, B, S), which may be z, and each sequence's share of the other gradients: (B, S) or (B, N)."""
    b = tl.program_id(0).to(tl.int64)
    batch = tl.num_programs(0).to(tl.int64)
    n = tl.arange(0, N)
    S: tl.constexpr = N * (2 if COMPLEX else 1)
    entries = load_entries(factors, COUNT, COMPLEX)
    inner = tl.load(bias + n) if BIAS else tl.zeros((N,), tl.float32)
    rate = tl.load(leak + n) if LEAK else inner
    g_re, g_im = load_planes(dh + b * S, n, N, COMPLEX, DH)
    bias_sum = tl.zeros((N,), tl.float32)
    leak_sum = tl.zeros((N,), tl.float32)
    start_re = tl.zeros((N,), tl.float32)
    start_im = tl.zeros((N,), tl.float32)
    length = length_of(lengths, b, steps, LENGTHS)
    for step in range(length):
        t = step if REVERSE else length - 1 - step
        row = t.to(tl.int64) * batch + b
        z_re, z_im = load_planes(z + row * S, n, N, COMPLEX, True)
        h_re, h_im = load_planes(before + row * S, n, N, COMPLEX, LEAK)
        d_re, d_im = load_planes(dstates + row * S, n, N, COMPLEX, DSTATES)
        g_re += d_re
        if COMPLEX:
            g_im += d_im
        dz_re, dz_im, db, dl = elman_gradient(
            z_re, z_im, h_re, h_im, inner, rate, g_re, g_im, SIGMA, COMPLEX, LEAK
        )
        store_planes(dz + row * S, n, dz_re, dz_im, N, COMPLEX)
        if DBIAS:
            bias_sum += db
        if DLEAK:
            leak_sum += dl
        around_re, around_im = g_re, g_im
        g_re, g_im = butterfly(dz_re, dz_im, entries, N, COUNT, COMPLEX, True)
        if LEAK:
            g_re += around_re - rate * around_re
            if COMPLEX:
                g_im += around_im - rate * around_im
        if RESET:
            # What has been carried to a reset belongs to the initial state; nothing goes on to the step before.
            flag = tl.load(anew + row) != 0
            if DINITIAL:
                start_re += tl.where(flag, g_re, 0.0)
                if COMPLEX:
                    start_im += tl.where(flag, g_im, 0.0)
            g_re = tl.where(flag, 0.0, g_re)
            if COMPLEX:
                g_im = tl.where(flag, 0.0, g_im)
    if DH0:
        store_planes(dh0 + b * S, n, g_re, g_im, N, COMPLEX)
    if DBIAS:
        tl.store(dbias + b * N + n, bias_sum)
    if DLEAK:
        tl.store(dleak + b * N + n, leak_sum)
    if DINITIAL:
        store_planes(dinitial + b * S, n, start_re, start_im, N, COMPLEX)
