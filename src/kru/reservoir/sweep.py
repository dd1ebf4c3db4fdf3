"""States in chunks of time, so that they are never all in memory."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CHUNK_VALUES = 1 << 22
"""A chunk holds about so many state values: 32 MB in double precision."""


def chunk_steps(batch: int, size: int) -> int:
    """How many steps of (B, S) states make a chunk."""
    return max(1, CHUNK_VALUES // max(1, batch * size))


@torch.no_grad()
def sweep(reservoir: nn.Module, x: Tensor, steps: int | None = None) -> Iterator[tuple[int, Tensor]]:
    """Run over x (T, B, D); yields the first step of each chunk and its states (t, B, S).

    >>> import torch, kru
    >>> chunks = kru.reservoir.sweep(kru.reservoir.Reservoir(3, 8), torch.randn(10, 1, 3), steps=4)
    >>> [(start, len(states)) for start, states in chunks]
    [(0, 4), (4, 4), (8, 2)]
    """
    size: int = reservoir.output_size  # type: ignore[assignment]
    steps = chunk_steps(x.shape[1], size) if steps is None else steps
    state = None
    for start in range(0, len(x), steps):
        states, state = reservoir(x[start : start + steps], state)
        yield start, states
