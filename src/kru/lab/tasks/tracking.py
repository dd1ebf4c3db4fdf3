"""State tracking: say after each symbol what state an automaton is in, beyond the length of training too."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kru.lab.tasks.automata import find_automaton
from kru.lab.tasks.generated import check_generated
from kru.nn.model import Sizes
from kru.training import counter
from kru.training.task import (
    IGNORED,
    SPLITS,
    Batch,
    Measure,
    Score,
    SequenceTask,
    Split,
    accuracy_score,
    cross_entropy,
)

_TRACKING = 0x747261636B
_SIZE: dict[Split, int] = {"train": 1_000_000, "valid": 200, "test": 300}

BIN = 32
"""Steps over which the accuracies along the test sequences are means."""


@dataclass(frozen=True)
class Tracking:
    """Track the state of an automaton."""

    automaton: Literal["parity", "cycle", "even-pairs", "arithmetic", "s3", "a5", "s5"] = "parity"
    """parity: of the ones; cycle: walking on a cycle of five places; even-pairs: whether the first and the last bit
    are equal; arithmetic: +, -, * modulo 5 without brackets; s3, a5, s5: products of elements of the group"""
    T: int = 40
    """steps of the training sequences"""
    valid_length: int = 160
    """steps of the validation sequences"""
    test_length: int = 1024
    """steps of the test sequences"""
    targets: Literal["all", "last"] = "all"
    """which steps of a training sequence have a target: all, or only the last one, in sequences of 1 to T steps"""
    seed: int = 0
    """chooses the sequences"""

    @property
    def sizes(self) -> Sizes:
        automaton = find_automaton(self.automaton)
        return Sizes(automaton.symbols, automaton.classes, last_only=False, symbols=True)

    @property
    def label(self) -> str:
        return find_automaton(self.automaton).label

    def with_length(self, length: int) -> "Tracking":
        """The same with validation and test sequences of this many steps."""
        return replace(self, valid_length=length, test_length=length)

    def load(self, data_dir: str | Path | None = None) -> "TrackingTask":
        """Nothing is read: the sequences are generated."""
        for name, steps in (
            ("T", self.T),
            ("valid-length", self.valid_length),
            ("test-length", self.test_length),
        ):
            if not 2 <= steps <= 2**20:
                raise ValueError(f"{name}: expected 2 to 2^20, got {steps}")
        check_generated(self.T, 2, self.seed)
        return TrackingTask(self)


class TrackingTask(SequenceTask):
    """Symbols (T, B) in, the class of the automaton's state after each of them out.

    Training, validation and test sequences have lengths of their own. Accuracy counts the second half of each sequence
    only: what is right in a sequence of T steps is right after T/2 to T steps.
    """

    symbols = True
    measure = Measure("accuracy", lower_is_better=False)

    def __init__(self, problem: Tracking) -> None:
        self.problem = problem
        self.automaton = find_automaton(problem.automaton)
        self.input_size, self.output_size = self.automaton.symbols, self.automaton.classes
        self.baseline = self._most_frequent()
        self._keys = {
            split: counter.derive_key(_TRACKING, problem.seed, place) for place, split in enumerate(SPLITS)
        }

    def size(self, split: Split) -> int:
        return _SIZE[split]

    def length(self, split: Split) -> int:
        """T of a split."""
        problem = self.problem
        return {"train": problem.T, "valid": problem.valid_length, "test": problem.test_length}[split]

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        T = self.length(split)
        # Sequence i owns the counters i (T + 1) ... i (T + 1) + T under the key of its split.
        words = counter.random_words(self._keys[split], indices * (T + 1) + np.arange(T + 1)[:, None])
        phases = self.automaton.phases
        symbols = np.empty((T, len(indices)), np.int64)
        for phase, drawn in enumerate(phases):
            part = slice(phase, T, len(phases))
            symbols[part] = drawn.start + counter.below(words[:T][part], len(drawn))
        targets = self.automaton.run(symbols)
        if split == "train" and self.problem.targets == "last":
            length = _last_with_target(1 + counter.below(words[T], T), len(phases))
            targets[np.arange(T)[:, None] != length - 1] = IGNORED
        return Batch(torch.from_numpy(symbols), torch.from_numpy(targets))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        half = len(batch.targets) // 2
        return accuracy_score(outputs[half:], batch.targets[half:])

    def details(self, model: nn.Module, batch_size: int) -> dict[str, Any]:
        """Accuracy on the test sequences at several lengths, and along them."""
        T = self.length("test")
        right, counted = np.zeros(T), np.zeros(T)
        model.eval()
        with torch.inference_mode():
            for batch in self.eval_batches("test", batch_size):
                outputs, _ = model(batch.inputs)
                real = (batch.targets != IGNORED).numpy()
                right += ((outputs.argmax(-1) == batch.targets).numpy() & real).sum(1)
                counted += real.sum(1)
        lengths = sorted({n for n in (self.problem.T, 256, 16 * self.problem.T, T) if n <= T})
        return {
            "accuracy_at": {str(n): _share(right[n // 2 : n], counted[n // 2 : n]) for n in lengths},
            "accuracy_along": [
                _share(right[start : start + BIN], counted[start : start + BIN]) for start in range(0, T, BIN)
            ],
        }

    def _most_frequent(self) -> float:
        """Per cent of the steps that have the most frequent class, after so many that the start is forgotten."""
        automaton = self.automaton
        share = np.zeros(len(automaton.move))
        share[0] = 1
        seen = np.zeros(automaton.classes)
        for t in range(400):
            phase = automaton.phases[t % len(automaton.phases)]
            after = np.zeros_like(share)
            for symbol in phase:
                np.add.at(after, automaton.move[:, symbol], share / len(phase))
            share = after
            if t >= 200:
                known = automaton.output != IGNORED
                np.add.at(seen, automaton.output[known], share[known])
        return float(100 * seen.max() / seen.sum())


def _share(right: NDArray[np.float64], counted: NDArray[np.float64]) -> float:
    return round(float(100 * right.sum() / counted.sum()), 3)


def _last_with_target(length: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """The lengths, made shorter where a sequence would end in a phase without a target: the first phase has one."""
    return length - (length - 1) % period
