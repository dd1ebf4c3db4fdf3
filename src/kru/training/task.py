"""The interface between a task and the training loop: batches by index, a loss, and an exact measure over a split.

A problem such as `CopyMemory(T=1000)` is a frozen dataclass of settings; its `load` returns a `Task`, which
has the data. Every batch is a pure function of (settings, batch size, seed, epoch, index), so an
interrupted run can resume at any batch without producing the earlier ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from kru.nn.model import Sizes
from kru.training import counter

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

# The target of a step that counts neither in the loss nor in a measure; the default of torch's cross entropy.
IGNORED = -100

_ORDER = 0x6F72646572


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A tensor on a device. From pinned memory a GPU copies it without keeping the program waiting."""
    if torch.device(device).type == "cuda" and tensor.is_cpu:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@dataclass(frozen=True)
class Batch:
    """A batch of sequences, time first.

    Args:
        inputs: float32 (T, B, D), or int64 symbols (T, B) below `Task.input_size`.
        targets: one entry per output: classes (T, B) or (B,), values (B, 1), or keys (T, B, 88). Classes
            beyond a sequence's end are `IGNORED`.
        lengths: int64 (B,), on the CPU: the number of steps of each sequence, without padding; None if all have T.
        carry: the sequences continue the sequences of the previous batch, so the initial state is the last state of
            that batch, detached; False: the initial state is zero.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    carry: bool = False

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch with inputs and targets on `device`. A GPU copies them while the program goes on."""
        return replace(self, inputs=moved(self.inputs, device), targets=moved(self.targets, device))

    def part(self, columns: slice, *, last_only: bool) -> "Batch":
        """Some of the sequences, without the steps after the end of the longest of them.

        Args:
            last_only: whether there are targets for the last step only, (B, ...) instead of (T, B, ...).
        """
        lengths = None if self.lengths is None else self.lengths[columns]
        steps = slice(None) if lengths is None else slice(int(lengths.max()))
        targets = self.targets[columns] if last_only else self.targets[steps, columns]
        return replace(self, inputs=self.inputs[steps, columns], targets=targets, lengths=lengths)

    def real_steps(self) -> Tensor | None:
        """Which steps are real, bool (T, B); None if all are."""
        if self.lengths is None:
            return None
        return torch.arange(self.inputs.shape[0])[:, None] < self.lengths


class Batches:
    """The batches of one pass over a split, each made when it is asked for: ``len``, index, iterate."""

    def __init__(self, count: int, make: Callable[[int], Batch]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < self._count:
            raise IndexError(f"index: expected 0 to {self._count - 1}, got {index}")
        return self._make(index)

    def __iter__(self) -> Iterator[Batch]:
        return (self._make(index) for index in range(self._count))


@dataclass(frozen=True)
class Measure:
    """What is reported of a model on a split, as in the paper's tables; accuracies are in per cent."""

    name: str
    lower_is_better: bool

    def improves(self, value: float, best: float) -> bool:
        """Whether `value` is better than `best`; a NaN never is."""
        return value < best if self.lower_is_better else value > best


@dataclass(frozen=True)
class Score:
    """A measure as sum and count, so that batches of any size add up to the mean over the whole split."""

    total: float = 0.0
    count: int = 0

    def __add__(self, other: "Score") -> "Score":
        return Score(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        """The mean; NaN of nothing."""
        return self.total / self.count if self.count else float("nan")


class Task(ABC):
    """A problem with its data.

    Attributes:
        input_size: D, the size of an input vector or the number of input symbols.
        output_size: C, the size of the output vector.
        symbols: whether inputs are symbols (T, B), to be read as one-hot vectors.
        last_only: whether outputs are read at the last step only, (B, C); else at all steps, (T, B, C).
        carries_state: whether batches of a pass continue each other (see `Batch.carry`).
        measure: what `score` measures.
        baseline: the measure on the test split of the best prediction that uses no memory (of a constant,
            from the training part, for measured data); NaN where it is not known.
    """

    input_size: int
    output_size: int
    symbols: bool = False
    last_only: bool = False
    carries_state: bool = False
    measure: Measure
    baseline: float = float("nan")

    @abstractmethod
    def size(self, split: Split) -> int:
        """How many sequences (of a text: characters) a split has."""

    @abstractmethod
    def train_batches(self, batch_size: int, *, epoch: int, seed: int) -> Batches:
        """One pass over the training split, in an order of its own for each (seed, epoch)."""

    @abstractmethod
    def eval_batches(self, split: Split, batch_size: int) -> Batches:
        """One pass over a split for measuring, every sequence once, in an order that does not matter."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The mean loss of a batch, a scalar to be differentiated."""

    def count(self, batch: Batch) -> int:
        """How many targets `loss` is the mean over, and `score` counts."""
        return _counted(batch.targets)

    @abstractmethod
    def score(self, outputs: Tensor, batch: Batch) -> Score:
        """The batch's part in the measure."""

    def details(self, model: nn.Module, batch_size: int) -> dict[str, Any]:
        """What else to record of a trained model on the test split, values for JSON by their names in the result."""
        return {}


class SequenceTask(Task):
    """A task whose splits are sets of independent sequences, shuffled anew in every epoch."""

    @abstractmethod
    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        """The batch of the given sequences of a split."""

    def train_batches(self, batch_size: int, *, epoch: int, seed: int) -> Batches:
        for name, value in (("epoch", epoch), ("seed", seed)):
            if value < 0:
                raise ValueError(f"{name}: expected at least 0, got {value}")
        order = counter.permutation(counter.derive_key(_ORDER, seed, epoch), self.size("train"))
        return self._batches("train", order, batch_size)

    def eval_batches(self, split: Split, batch_size: int) -> Batches:
        return self._batches(split, self._eval_order(split), batch_size)

    def _eval_order(self, split: Split) -> NDArray[np.int64]:
        return np.arange(self.size(split))

    def _batches(self, split: Split, order: NDArray[np.int64], batch_size: int) -> Batches:
        check_batch_size(batch_size)
        count = -(-len(order) // batch_size)
        return Batches(
            count, lambda index: self.take(split, order[index * batch_size : (index + 1) * batch_size])
        )


class Problem(Protocol):
    """Settings of a task, a frozen dataclass."""

    @property
    def sizes(self) -> Sizes:
        """What a model of the task has to have, known without the data."""
        ...

    @property
    def label(self) -> str:
        """What tables and figures call the task with these settings."""
        ...

    def load(self, data_dir: str | Path | None = None) -> Task: ...


def check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over all targets that are not ignored, in nats; outputs (..., C), targets (...)."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def cross_entropy_score(outputs: Tensor, targets: Tensor) -> Score:
    """Cross entropy in nats, summed in double precision, over the targets that are not ignored."""
    losses = functional.cross_entropy(
        outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return Score(losses.sum(dtype=torch.float64).item(), _counted(targets))


def accuracy_score(outputs: Tensor, targets: Tensor) -> Score:
    """Per cent of the targets that have the largest output, of those that are not ignored."""
    return Score(100.0 * int((outputs.argmax(-1) == targets).sum()), _counted(targets))


def _counted(targets: Tensor) -> int:
    return int((targets != IGNORED).sum())
