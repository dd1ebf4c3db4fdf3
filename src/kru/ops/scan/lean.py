"""Long sequences in little memory: only every k-th state is kept, and the steps in between are computed again."""

from math import isqrt

import torch
from torch import Tensor

from kru.ops import bindings
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.contract import input_kind

MEMORY = ("full", "lean")
"""What is kept for the backward pass: what every step needs, or some of the states."""
CACHED = 1 << 19
"""Bytes of the states between two kept ones that still find room in a core's own cache."""
PART = 1 << 25
"""Bytes of the input part of one piece of a sequence, where the input is multiplied before the kernel."""


def steps_between(steps: int, state: int, itemsize: int) -> int:
    """k: after how many steps a state is kept.

    About sqrt(T), where the T / k kept states and the k that are computed again take the least memory, but no more than
    stay in the cache, and no fewer than 16.

    >>> steps_between(784, 1024, 4), steps_between(100_000, 1024, 4)
    (28, 128)
    """
    return max(
        1, min(isqrt(steps) + (isqrt(steps) ** 2 < steps), max(16, CACHED // (state * itemsize)), steps)
    )


def lean_scan(arguments: ScanArguments, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """states, h and c of `torch.ops.kru.scan` for arguments with `every`.

    The input part of a wide input takes as much memory as the states. It is made for one piece of the sequence at a
    time: the pieces are calls of their own, each of which starts from the last state of the one before.
    """
    pieces = _pieces(arguments)
    if len(pieces) == 1:
        return _call(arguments, keep)
    states: list[Tensor] = []
    h, c = arguments.h0, arguments.c0
    for begin, end in reversed(pieces) if arguments.reverse else pieces:
        if arguments.reverse and arguments.reset is not None and end < arguments.steps and h is not None:
            # In reverse the step after a piece, in another piece, may be the first of a sequence.
            h, c = _restarted(arguments, end, h, c)
        piece = arguments._replace(
            every=min(arguments.every, end - begin),
            x=arguments.x[begin:end],
            h0=h,
            c0=c,
            lengths=None if arguments.lengths is None else (arguments.lengths - begin).clamp(0, end - begin),
            reset=None if arguments.reset is None else arguments.reset[begin:end],
        )
        out, h, last_c = _call(piece, keep)
        c = last_c if arguments.has_memory else None
        states.append(out)
    assert h is not None
    ordered = states[::-1] if arguments.reverse else states
    return torch.cat(ordered) if arguments.need_states else states[0], h, h.new_empty(0) if c is None else c


def _pieces(arguments: ScanArguments) -> list[tuple[int, int]]:
    """Begin and end of each piece, a multiple of `every` steps."""
    steps, every = arguments.steps, arguments.every
    if arguments.weight is None or input_kind(arguments.x, arguments.weight) != bindings.PART:
        return [(0, steps)]
    width = arguments.gates * arguments.state * arguments.factors[0].itemsize
    size = max(1, PART // (every * max(1, arguments.batch) * width)) * every
    return [(begin, min(begin + size, steps)) for begin in range(0, max(1, steps), size)]


def _restarted(arguments: ScanArguments, t: int, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The states where those rows start anew that have a reset at step t, before their end."""
    assert arguments.reset is not None
    anew = arguments.reset[t]
    if arguments.lengths is not None:
        anew = anew & (arguments.lengths.to(anew.device) > t)
    anew = anew.unsqueeze(1)
    start = torch.zeros_like(h) if arguments.initial is None else arguments.initial.expand_as(h)
    return torch.where(anew, start, h), None if c is None else c.masked_fill(anew, 0.0)


def _call(arguments: ScanArguments, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    states, h, c, _, _ = torch.ops.kru.scan(
        arguments.x, arguments.weight, list(arguments.factors), *arguments[3:], keep
    )
    return states, h, c
