"""A text as a task of the trainer: every symbol is predicted from those before it."""

import math
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kru.training import counter
from kru.training.task import (
    IGNORED,
    Batch,
    Batches,
    Measure,
    Score,
    Split,
    Task,
    check_batch_size,
    cross_entropy,
    cross_entropy_score,
)

_SHIFT = 0x7368696674

PIECES = 8
"""Into how many pieces the held-out part of a text is cut."""


class TextTask(Task):
    """Windows of parallel streams, each carrying on where the one before ended.

    A split of n symbols is cut into B streams. Before its first symbol a stream reads the one before it in the split,
    and the very first reads `start`. Every epoch of training begins at another place of the text, so that windows
    are not always cut alike; what lies before it comes last.

    Args:
        train, valid: codes, int64 (n,); `valid` may be empty.
        size: the number of codes.
        start: the code that stands for what is before the text.
        window: steps through which a gradient flows.
    """

    symbols = True
    carries_state = True
    measure: ClassVar[Measure] = Measure("bits per symbol", lower_is_better=True)  # type: ignore[misc]

    def __init__(
        self, train: NDArray[np.int64], valid: NDArray[np.int64], *, size: int, start: int, window: int
    ) -> None:
        self.input_size = self.output_size = size
        self._codes: dict[Split, NDArray[np.int64]] = {"train": train, "valid": valid, "test": valid[:0]}
        self._start = start
        self._window = window

    def set_test(self, codes: NDArray[np.int64]) -> None:
        """A text for testing."""
        self._codes["test"] = codes

    def size(self, split: Split) -> int:
        return len(self._codes[split])

    def train_batches(self, batch_size: int, *, epoch: int, seed: int) -> Batches:
        codes = self._codes["train"]
        words = counter.random_words(counter.derive_key(_SHIFT, seed, epoch), np.zeros(1, dtype=np.int64))
        return self._batches(np.roll(codes, -int(counter.below(words, len(codes))[0])), batch_size)

    def eval_batches(self, split: Split, batch_size: int) -> Batches:
        # Few streams: each lacks its past at its beginning.
        return self._batches(self._codes[split], max(1, min(batch_size, len(self._codes[split]) // 1000)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        nats = cross_entropy_score(outputs, batch.targets)
        return Score(nats.total / math.log(2), nats.count)

    def _batches(self, codes: NDArray[np.int64], streams: int) -> Batches:
        check_batch_size(streams)
        streams = min(streams, len(codes))
        length = -(-len(codes) // streams)
        padded = np.full(streams * length, IGNORED, dtype=np.int64)
        padded[: len(codes)] = codes
        targets = padded.reshape(streams, length).T
        before = np.concatenate([[self._start], np.where(padded == IGNORED, 0, padded)[:-1]])
        inputs = before.reshape(streams, length).T

        def make(index: int) -> Batch:
            steps = slice(index * self._window, (index + 1) * self._window)
            return Batch(
                torch.from_numpy(np.ascontiguousarray(inputs[steps])),
                torch.from_numpy(np.ascontiguousarray(targets[steps])),
                carry=index > 0,
            )

        return Batches(-(-length // self._window), make)


def hold_out(codes: NDArray[np.int64], fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A text without some pieces of it, and these pieces.

    They are spread evenly: the end alone of a text is often unlike the rest, such as an index or notes.

    >>> hold_out(np.arange(32), 0.25)[1].tolist()
    [2, 6, 10, 14, 18, 22, 26, 30]
    """
    length = int(fraction * len(codes) / PIECES)
    middles = (np.arange(PIECES) + 0.5) * len(codes) / PIECES
    held = np.zeros(len(codes), dtype=bool)
    for middle in middles:
        first = int(middle - length / 2 + 0.5)
        held[first : first + length] = True
    return codes[~held], codes[held]
