"""LSTM and GRU on the GPU, with factors of any size: the way through time is that of `triton_stream`."""

# mypy: ignore-errors

import triton
import triton.language as tl

from kru.ops.scan.triton_functions import sigmoid, tanh
from kru.ops.scan.triton_stream import end_at_reset, longest_of, places, product, restart


@triton.jit
def gated_forward(
    weights, part, recurrent_bias, lengths, anew, initial, states, gates, cells, h, c, scratch, steps, batch,
    STAGES: tl.constexpr, TERMS: tl.constexpr, N: tl.constexpr, W: tl.constexpr, BB: tl.constexpr,
    BLOCK: tl.constexpr, LSTM: tl.constexpr, REVERSE: tl.constexpr, BIAS: tl.constexpr, LENGTHS: tl.constexpr,
    RESET: tl.constexpr, INITIAL: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """h and c (B, N) hold the initial states, then the carried ones, in the end the last. The gates may be the part."""
    first = tl.program_id(0).to(tl.int64) * BB
    G: tl.constexpr = 4 if LSTM else 3
    z = scratch + first * (G * N + 2 * W)
    between = z + BB * G * N
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
                N,
                BB,
                BLOCK,
                REVERSE,
                LENGTHS,
                INITIAL,
            )
            if LSTM:
                restart(
                    step,
                    first,
                    batch,
                    lengths,
                    steps,
                    anew,
                    initial,
                    c,
                    N,
                    N,
                    BB,
                    BLOCK,
                    REVERSE,
                    LENGTHS,
                    False,
                )
            tl.debug_barrier()
        product(weights, h + first * N, 0, between, z, BB * N, rows, STAGES, TERMS, G, N, W, BB, False, False)
        for start in range(0, BB * N, BLOCK):
            row, n, sequence, active, place = places(
                start, step, first, batch, lengths, steps, N, BB, BLOCK, REVERSE, LENGTHS
            )
            own = z + row * N + n
            a = part + place * (G * N) + n
            kept_gate = gates + place * (G * N) + n
            carried = h + sequence * N + n
            s0 = tl.load(a, mask=active, other=0.0) + tl.load(own, mask=active, other=0.0)
            s1 = tl.load(a + N, mask=active, other=0.0) + tl.load(own + BB * N, mask=active, other=0.0)
            s2 = tl.load(a + 2 * N, mask=active, other=0.0)
            z2 = tl.load(own + 2 * BB * N, mask=active, other=0.0)
            if LSTM:
                s3 = tl.load(a + 3 * N, mask=active, other=0.0)
                s3 += tl.load(own + 3 * BB * N, mask=active, other=0.0)
                i, f, g, o = sigmoid(s0), sigmoid(s1), tanh(s2 + z2), sigmoid(s3)
                memory = c + sequence * N + n
                kept = f * tl.load(memory, mask=active, other=0.0) + i * g
                new = o * tanh(kept)
                tl.store(memory, kept, mask=active)
                if KEEP:
                    tl.store(kept_gate, i, mask=active)
                    tl.store(kept_gate + N, f, mask=active)
                    tl.store(kept_gate + 2 * N, g, mask=active)
                    tl.store(kept_gate + 3 * N, o, mask=active)
            else:
                kept = z2
                if BIAS:
                    kept += tl.load(recurrent_bias + n)
                r, u = sigmoid(s0), sigmoid(s1)
                candidate = tanh(s2 + r * kept)
                new = candidate + u * (tl.load(carried, mask=active, other=0.0) - candidate)
                if KEEP:
                    tl.store(kept_gate, r, mask=active)
                    tl.store(kept_gate + N, u, mask=active)
                    tl.store(kept_gate + 2 * N, candidate, mask=active)
            if KEEP:
                tl.store(cells + place * N + n, kept, mask=active)
            tl.store(carried, new, mask=active)
            tl.store(states + place * N + n, new, mask=active)
        tl.debug_barrier()


@triton.jit
def gated_backward(
    weights, gates, cells, before, dstates, lengths, anew, dpart, dkept, g, gc, dinitial, scratch, steps, batch,
    STAGES: tl.constexpr, TERMS: tl.constexpr, N: tl.constexpr, W: tl.constexpr, BB: tl.constexpr,
    BLOCK: tl.constexpr, LSTM: tl.constexpr, REVERSE: tl.constexpr, LENGTHS: tl.constexpr, RESET: tl.constexpr,
    DSTATES: tl.constexpr, DINITIAL: tl.constexpr,
):  # fmt: skip
    """dpart (T, B, G N); g and gc (B, N), which hold dh and dc and in the end dh0 and dc0.

    `before` holds c_{t-1} for the LSTM, h_{t-1} for the GRU, whose dkept (T, B, N) is the gradient at W^n h_{t-1}.
    """
    first = tl.program_id(0).to(tl.int64) * BB
    G: tl.constexpr = 4 if LSTM else 3
    now = scratch + first * (G * N + 2 * W)
    between = now + BB * G * N
    rows = tl.minimum(batch - first, BB)
    longest = longest_of(lengths, first, batch, steps, BB, LENGTHS)
    for back in range(longest):
        step = longest - 1 - back
        for start in range(0, BB * N, BLOCK):
            row, n, sequence, active, place = places(
                start, step, first, batch, lengths, steps, N, BB, BLOCK, REVERSE, LENGTHS
            )
            gate = gates + place * (G * N) + n
            at = place * N + n
            carried = g + sequence * N + n
            gh = tl.load(carried, mask=active, other=0.0)
            if DSTATES:
                gh += tl.load(dstates + at, mask=active, other=0.0)
            g0 = tl.load(gate, mask=active, other=0.0)
            g1 = tl.load(gate + N, mask=active, other=0.0)
            g2 = tl.load(gate + 2 * N, mask=active, other=0.0)
            kept = tl.load(cells + at, mask=active, other=0.0)
            past = tl.load(before + at, mask=active, other=0.0)
            target = dpart + place * (G * N) + n
            own = now + row * N + n
            if LSTM:
                g3 = tl.load(gate + 3 * N, mask=active, other=0.0)
                squashed = tanh(kept)
                memory = gc + sequence * N + n
                at_c = tl.load(memory, mask=active, other=0.0) + gh * g3 * (1.0 - squashed * squashed)
                d0 = at_c * g2 * g0 * (1.0 - g0)
                d1 = at_c * past * g1 * (1.0 - g1)
                d2 = at_c * g0 * (1.0 - g2 * g2)
                d3 = gh * squashed * g3 * (1.0 - g3)
                inner = d2
                tl.store(memory, at_c * g1, mask=active)
                tl.store(carried, gh * 0.0, mask=active)
                tl.store(target + 3 * N, d3, mask=active)
                tl.store(own + 3 * BB * N, tl.where(active, d3, 0.0), mask=row < rows)
            else:
                d2 = gh * (1.0 - g1) * (1.0 - g2 * g2)
                d0 = d2 * kept * g0 * (1.0 - g0)
                d1 = gh * (past - g2) * g1 * (1.0 - g1)
                inner = d2 * g0
                tl.store(carried, gh * g1, mask=active)
                tl.store(dkept + at, inner, mask=active)
            # A sequence that has ended takes no part: zeros go into the product, and what it carries stays.
            tl.store(target, d0, mask=active)
            tl.store(target + N, d1, mask=active)
            tl.store(target + 2 * N, d2, mask=active)
            tl.store(own, tl.where(active, d0, 0.0), mask=row < rows)
            tl.store(own + BB * N, tl.where(active, d1, 0.0), mask=row < rows)
            tl.store(own + 2 * BB * N, tl.where(active, inner, 0.0), mask=row < rows)
        tl.debug_barrier()
        product(
            weights, now, BB * N, between, g + first * N, 0, rows, STAGES, TERMS, G, N, W, BB, False, True
        )
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
                N,
                BB,
                BLOCK,
                REVERSE,
                LENGTHS,
                DINITIAL,
            )
            if LSTM:
                end_at_reset(
                    step,
                    first,
                    batch,
                    lengths,
                    steps,
                    anew,
                    gc,
                    dinitial,
                    N,
                    N,
                    BB,
                    BLOCK,
                    REVERSE,
                    LENGTHS,
                    False,
                )
            tl.debug_barrier()
