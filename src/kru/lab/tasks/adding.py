"""Adding: the sum of the two marked numbers among T."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from kru.lab.tasks.generated import check_generated, generated_size, global_indices
from kru.nn.model import Sizes
from kru.training import counter
from kru.training.task import Batch, Batches, Measure, Score, SequenceTask, Split

_ADDING = 0x616464


@dataclass(frozen=True)
class Adding:
    """Adding over T steps.

    Args:
        seed: chooses the sequences.
        short_length, short_epochs: how long the training sequences of the first epochs are, and for how many epochs; 0
            epochs: they always have T steps. Those of validation and test always have.
    """

    T: int = 750
    seed: int = 0
    short_length: int = 100
    short_epochs: int = 0

    @property
    def sizes(self) -> Sizes:
        return Sizes(2, 1, last_only=True)

    @property
    def label(self) -> str:
        return f"Adding, T = {self.T}"

    def with_length(self, length: int) -> "Adding":
        """The same with sequences of this many steps, always."""
        return replace(self, T=length, short_epochs=0)

    def load(self, data_dir: str | Path | None = None) -> "AddingTask":
        """Nothing is read: the sequences are generated."""
        check_generated(self.T, 2, self.seed)
        if self.short_epochs < 0:
            raise ValueError(f"short_epochs: expected at least 0, got {self.short_epochs}")
        if self.short_epochs and not 2 <= self.short_length <= self.T:
            raise ValueError(f"short_length: expected 2 to T = {self.T}, got {self.short_length}")
        return AddingTask(self)


class AddingTask(SequenceTask):
    """Numbers, of which two are marked: inputs (T, B, 2), target (B, 1).

    The first input is uniform in [0, 1). The second is the marker: 1 at one step of the first half (the first
    T // 2 steps) and at one step of the rest, else 0. The target is the sum of the two marked numbers.

    The constant 1 is right on average and leaves the variance of two uniform numbers, 2/12 = 0.167.
    """

    input_size = 2
    output_size = 1
    last_only = True
    measure = Measure("mean squared error", lower_is_better=True)
    baseline = 1 / 6

    def __init__(self, problem: Adding) -> None:
        self.problem = problem
        self._key = counter.derive_key(_ADDING, problem.seed)

    def size(self, split: Split) -> int:
        return generated_size(split)

    def train_batches(self, batch_size: int, *, epoch: int, seed: int) -> Batches:
        if 0 <= epoch < self.problem.short_epochs:
            # Shorter sequences with the same indices own counters below those of validation and test.
            shorter = AddingTask(replace(self.problem, T=self.problem.short_length, short_epochs=0))
            return shorter.train_batches(batch_size, epoch=epoch, seed=seed)
        return super().train_batches(batch_size, epoch=epoch, seed=seed)

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        T = self.problem.T
        # Sequence i owns the counters i (T + 2) ... i (T + 2) + T + 1: its T numbers and its two marked
        # steps.
        first = global_indices(split, indices) * (T + 2)
        words = counter.random_words(self._key, first + np.arange(T + 2)[:, None])
        marked = np.stack([counter.below(words[T], T // 2), T // 2 + counter.below(words[T + 1], T - T // 2)])
        columns = np.arange(len(indices))
        inputs = np.zeros((T, len(indices), 2), np.float32)
        inputs[:, :, 0] = counter.uniform(words[:T])
        inputs[marked, columns, 1] = 1.0
        targets = inputs[marked, columns, 0].sum(axis=0)[:, None]
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return functional.mse_loss(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        errors = (outputs.double() - batch.targets.double()).square()
        return Score(errors.sum().item(), errors.numel())
