"""Polyphonic music: predict which of 88 keys sound at each step from the steps before."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from kru.lab.data import DATASETS, DataError, find
from kru.lab.tasks.matlab import read_cells
from kru.lab.tasks.padding import by_length, lengths_of, pad
from kru.nn.model import Sizes
from kru.training.task import Batch, Measure, Score, SequenceTask, Split

KEYS = 88
COLLECTIONS = ("jsb", "piano-midi", "nottingham")

Rolls = dict[Split, list[NDArray[np.uint8]]]


@dataclass(frozen=True)
class Music:
    """Piano rolls: `collection` jsb, piano-midi, nottingham or the path of a .mat file of the same form."""

    collection: str = "jsb"

    @property
    def sizes(self) -> Sizes:
        return Sizes(KEYS, KEYS, last_only=False)

    @property
    def label(self) -> str:
        return f"Music, {Path(self.collection).stem}"

    def load(self, data_dir: str | Path | None = None) -> "MusicTask":
        if self.collection in COLLECTIONS:
            path = find(DATASETS[self.collection].files[0].path, data_dir)
        elif self.collection.endswith(".mat"):
            path = Path(self.collection).expanduser()
            if not path.is_file():
                raise DataError(
                    f"{path}: missing; expected a .mat file with traindata, validdata and testdata"
                )
        else:
            raise ValueError(
                f"collection: expected one of {', '.join(COLLECTIONS)} or a path ending in .mat, got "
                f"{self.collection!r}"
            )
        return MusicTask(self, read_rolls(path))


def read_rolls(path: Path) -> Rolls:
    """The piano rolls in a MATLAB 5 file: (steps, 88) matrices of 0 and 1 in three cell arrays."""
    names: dict[Split, str] = {"train": "traindata", "valid": "validdata", "test": "testdata"}
    contents = read_cells(path)
    rolls: Rolls = {}
    for split, name in names.items():
        if name not in contents:
            raise DataError(
                f"{path}: expected the cell arrays traindata, validdata and testdata, got no {name}"
            )
        if not contents[name]:
            raise DataError(f"{path}: {name}: expected matrices, got an empty cell array")
        rolls[split] = [_check_roll(f"{path}: {name}[{n}]", roll) for n, roll in enumerate(contents[name])]
    return rolls


def _check_roll(where: str, roll: NDArray[np.generic]) -> NDArray[np.uint8]:
    if roll.shape[1] != KEYS or len(roll) == 0:
        raise DataError(f"{where}: expected a matrix (steps, {KEYS}), got {roll.shape}")
    if not np.isin(roll, (0, 1)).all():
        raise DataError(f"{where}: expected nothing but 0 and 1, got {roll.min()} to {roll.max()}")
    return roll.astype(np.uint8)


class MusicTask(SequenceTask):
    """Inputs and targets (T, B, 88), sequences of different lengths padded to the longest.

    The target of step t is frame t and the input is frame t - 1, a frame of silence for the first step, so
    every frame is predicted, also the first, and counts. The measure is

        - sum_t sum_k [ y_tk log p_tk + (1 - y_tk) log(1 - p_tk) ] / (number of real steps t),

    the sum over keys of the binary cross entropy, averaged over all real steps of the split at once (the mean
    over steps, not over sequences). The baseline is independent Bernoulli keys with their frequencies in
    training: (n_k + 0.01) / (steps + 0.02).
    """

    input_size = KEYS
    output_size = KEYS
    measure = Measure("negative log-likelihood per step", lower_is_better=True)

    def __init__(self, problem: Music, rolls: Rolls) -> None:
        self.problem = problem
        self._rolls = rolls
        train, test = (np.concatenate(rolls[split]).astype(np.float64) for split in ("train", "test"))
        p = (train.sum(axis=0) + 0.01) / (len(train) + 0.02)
        self.baseline = float(-(test @ np.log(p) + (1 - test) @ np.log1p(-p)).mean())

    def size(self, split: Split) -> int:
        return len(self._rolls[split])

    def _eval_order(self, split: Split) -> NDArray[np.int64]:
        return by_length(self._rolls[split])

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        rolls = [self._rolls[split][index] for index in indices]
        targets = pad(rolls, 0.0, torch.float32)
        inputs = torch.zeros_like(targets)
        inputs[1:] = targets[:-1]
        return Batch(inputs, targets, lengths_of(rolls))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return _step_losses(outputs, batch).mean()

    def count(self, batch: Batch) -> int:
        steps, sequences = batch.inputs.shape[:2]
        return steps * sequences if batch.lengths is None else int(batch.lengths.sum())

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        losses = _step_losses(outputs, batch)
        return Score(losses.sum(dtype=torch.float64).item(), losses.numel())


def _step_losses(outputs: Tensor, batch: Batch) -> Tensor:
    """The summed binary cross entropy of each real step, in one row."""
    losses = functional.binary_cross_entropy_with_logits(outputs, batch.targets, reduction="none").sum(-1)
    real = batch.real_steps()
    return losses.flatten() if real is None else losses[real.to(losses.device)]
