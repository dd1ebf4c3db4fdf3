"""A user's arrays as a task of the trainer."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from kru.training.task import Batch, Measure, Score, SequenceTask, Split


@dataclass(frozen=True)
class WeightedBatch(Batch):
    """A batch whose sequences count with a weight each.

    Args:
        weights: float32 (B,); over the training split their mean is one.
    """

    weights: Tensor | None = None

    def to(self, device: torch.device | str) -> "WeightedBatch":
        moved = super().to(device)
        assert isinstance(moved, WeightedBatch)
        return replace(moved, weights=None if self.weights is None else self.weights.to(device))

    def part(self, columns: slice, *, last_only: bool) -> "WeightedBatch":
        cut = super().part(columns, last_only=last_only)
        assert isinstance(cut, WeightedBatch)
        return replace(cut, weights=None if self.weights is None else self.weights[columns])


class ArrayTask(SequenceTask):
    """Sequences in memory with one target each.

    Args:
        inputs: float32 (T, R * N, D) or int64 symbols (T, R * N), in R rounds (mostly one): sequence j of every round
            is a variant of sequence j of the first.
        lengths: int64 (R * N,).
        targets: classes (N,) or values (N, C).
        weights: (N,); None for ones.
        held_out: the sequences of the validation split; none of them is trained on.
        output_size: C.
    """

    last_only = True
    measure: ClassVar[Measure] = Measure("loss", lower_is_better=True)  # type: ignore[misc]

    def __init__(
        self,
        inputs: NDArray[np.float32] | NDArray[np.int64],
        lengths: NDArray[np.int64],
        targets: NDArray[np.int64] | NDArray[np.float32],
        *,
        weights: NDArray[np.float64] | None,
        held_out: NDArray[np.int64],
        input_size: int,
        output_size: int,
    ) -> None:
        self.input_size = input_size
        self.output_size = output_size
        self.symbols = inputs.ndim == 2
        self._inputs = torch.from_numpy(inputs)
        self._targets = torch.from_numpy(targets)
        self._lengths = torch.from_numpy(lengths)
        self._unequal = bool((lengths != len(inputs)).any())
        columns = np.arange(len(lengths))
        self._cases = len(targets)
        # A variant of what is held out would give it away.
        training = columns[~np.isin(columns % self._cases, held_out)]
        self._weights: Tensor | None = None
        if weights is not None:
            # Sequences without weight would only dilute the batches.
            training = training[weights[training % self._cases] > 0]
            if len(training) == 0:
                raise ValueError("sample_weight: expected at least one weight above zero, got none")
            mean = weights[training % self._cases].mean()
            self._weights = torch.from_numpy((weights / mean).astype(np.float32))
        self._splits: dict[Split, NDArray[np.int64]] = {
            "train": training,
            "valid": held_out,
            "test": held_out[:0],
        }

    def set_splits(self, splits: Mapping[Split, NDArray[np.int64]]) -> None:
        """Which sequences are in which split, where there is a split for testing too."""
        self._splits = dict(splits)

    def digest(self) -> str:
        """SHA-256 of all data, and of what is held out."""
        arrays = [
            self._inputs,
            self._lengths,
            self._targets,
            self._weights,
            *map(torch.from_numpy, self._splits.values()),
        ]
        sha = hashlib.sha256()
        for array in arrays:
            if array is not None:
                sha.update(f"{array.dtype} {tuple(array.shape)}".encode())
                sha.update(array.contiguous().numpy().tobytes())
        return sha.hexdigest()

    def size(self, split: Split) -> int:
        return len(self._splits[split])

    def take(self, split: Split, indices: NDArray[np.int64]) -> WeightedBatch:
        columns = torch.from_numpy(self._splits[split][indices])
        lengths = self._lengths[columns] if self._unequal else None
        steps = slice(None) if lengths is None else slice(int(lengths.max()))
        cases = columns % self._cases
        return WeightedBatch(
            self._inputs[steps, columns],
            self._targets[cases],
            lengths,
            weights=None if self._weights is None else self._weights[cases],
        )

    def count(self, batch: Batch) -> int:
        return len(batch.targets)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sequence, (B,)."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self._weighted(outputs, batch).mean()

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        return Score(self._weighted(outputs, batch).sum(dtype=torch.float64).item(), len(batch.targets))

    def _weighted(self, outputs: Tensor, batch: Batch) -> Tensor:
        losses = self.losses(outputs, batch.targets)
        weights = batch.weights if isinstance(batch, WeightedBatch) else None
        return losses if weights is None else losses * weights


class Classification(ArrayTask):
    """Targets are classes; the loss is cross entropy."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none")


class Regression(ArrayTask):
    """Targets are standardised values; the loss is the squared error."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean(-1)
