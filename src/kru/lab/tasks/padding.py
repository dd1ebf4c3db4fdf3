"""Sequences of different lengths in one batch."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pad(sequences: Sequence[NDArray[np.generic]], fill: float, dtype: torch.dtype) -> Tensor:
    """Arrays (T_b, ...) side by side as (max T_b, B, ...), with `fill` after the end of each."""
    longest = max(len(sequence) for sequence in sequences)
    padded = torch.full((longest, len(sequences), *sequences[0].shape[1:]), fill, dtype=dtype)
    for b, sequence in enumerate(sequences):
        padded[: len(sequence), b] = torch.from_numpy(sequence)
    return padded


def lengths_of(sequences: Sequence[NDArray[np.generic]]) -> Tensor | None:
    """The lengths (B,), or None if they are all the same."""
    lengths = [len(sequence) for sequence in sequences]
    return None if min(lengths) == max(lengths) else torch.tensor(lengths)


def by_length(sequences: Sequence[NDArray[np.generic]]) -> NDArray[np.int64]:
    """The order from the longest to the shortest, in which batches are padded least."""
    return np.argsort([-len(sequence) for sequence in sequences], kind="stable").astype(np.int64)
