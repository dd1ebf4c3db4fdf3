"""Copy memory: recall ten symbols after T steps."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kru.lab.tasks.generated import check_generated, generated_size, global_indices
from kru.nn.model import Sizes
from kru.training import counter
from kru.training.task import Batch, Measure, Score, SequenceTask, Split, cross_entropy, cross_entropy_score

BLANK = 0
DELIMITER = 9
RECALLED = 10

_COPY = 0x636F7079
_HALF_BITS = 15  # ten symbols of three bits are 30 bits


@dataclass(frozen=True)
class CopyMemory:
    """Copy memory with a gap of T steps; `seed` chooses the sequences."""

    T: int = 1000
    seed: int = 0

    @property
    def sizes(self) -> Sizes:
        return Sizes(10, 10, last_only=False, symbols=True)

    @property
    def label(self) -> str:
        return f"Copy memory, T = {self.T}"

    def with_length(self, length: int) -> "CopyMemory":
        """The same with this gap."""
        return replace(self, T=length)

    def load(self, data_dir: str | Path | None = None) -> "CopyMemoryTask":
        """Nothing is read: the sequences are generated."""
        check_generated(self.T, 1, self.seed)
        return CopyMemoryTask(self)


class CopyMemoryTask(SequenceTask):
    """Sequences of T + 20 symbols out of {0, ..., 9}: 0 is blank, 9 the delimiter.

    The input is ten symbols out of {1, ..., 8}, T - 1 blanks, the delimiter and ten blanks; the target is T +
    10 blanks and then the ten symbols. Sequence i is the image of i under a one-to-one map of the 8^10 = 2^30
    possible messages which (the seed) chooses, so no two sequences of the 120,000 are equal and the splits
    are disjoint.

    Without memory, the best guess is certain of the blanks and indifferent between eight symbols at the end:
    a mean cross entropy of 10 ln 8 / (T + 20).
    """

    input_size = 10
    output_size = 10
    symbols = True
    measure = Measure("cross entropy", lower_is_better=True)

    def __init__(self, problem: CopyMemory) -> None:
        self.problem = problem
        self.baseline = RECALLED * math.log(8) / (problem.T + 2 * RECALLED)
        self._key = counter.derive_key(_COPY, problem.seed)

    def size(self, split: Split) -> int:
        return generated_size(split)

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        messages = counter.scramble(self._key, global_indices(split, indices), _HALF_BITS)
        shifts = 3 * np.arange(RECALLED, dtype=np.uint64)[:, None]
        symbols = ((messages >> shifts) & np.uint64(7)).astype(np.int64) + 1
        T = self.problem.T
        inputs = np.full((T + 2 * RECALLED, len(indices)), BLANK)
        inputs[:RECALLED] = symbols
        inputs[T + RECALLED - 1] = DELIMITER
        targets = np.full_like(inputs, BLANK)
        targets[-RECALLED:] = symbols
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        return cross_entropy_score(outputs, batch.targets)
