"""A recurrent matrix and a task from outside the package; docs/extending.md explains them.

The matrix is circulant and orthogonal. The task is to name the first symbol of a sequence after its last one:

    kru train first_symbol.toml --results mine
"""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kru.matrices import RecurrentMatrix
from kru.nn.elman import Elman
from kru.nn.kinds import Kind, ModelSettings
from kru.nn.model import Sizes
from kru.training import counter
from kru.training.task import (
    SPLITS,
    Batch,
    Measure,
    Score,
    SequenceTask,
    Split,
    accuracy_score,
    cross_entropy,
)


class CirculantMatrix(RecurrentMatrix):
    """W = F^-1 diag(exp(i theta)) F with the Fourier transform F: circulant, and orthogonal whatever theta is.

    theta is odd in the frequency, which makes W real: of N angles, (N - 1) // 2 are free. They are the parameter
    `angles`, uniform in [-spread, spread] at the start.
    """

    def __init__(self, size: int, spread: float = math.pi) -> None:
        super().__init__(((size, size),), field="real", gates=1, constraint="exact")
        self.size = size
        self.spread = spread
        self.angles = nn.Parameter(torch.empty((size - 1) // 2))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        # The frequencies 0 and, of an even N, N / 2 have no partner: their angle is 0.
        last = self.angles.new_zeros(1 - self.size % 2)
        theta = torch.cat([self.angles.new_zeros(1), self.angles, last])
        column = torch.fft.irfft(torch.polar(torch.ones_like(theta), theta), n=self.size)
        place = torch.arange(self.size, device=column.device)
        return [column[(place[:, None] - place) % self.size]]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.angles.uniform_(-self.spread, self.spread)


@dataclass(frozen=True)
class CirculantSettings(ModelSettings):
    """What a recipe can say of the model beside what every model has."""

    spread: float = math.pi
    """bound on the initial angles"""


def build(input_size: int, config: CirculantSettings) -> Elman:
    """The layer h_t = sigma(W h_{t-1} + U x_t) with modReLU for sigma."""
    options: dict[str, Any] = config.layer_arguments()
    return Elman(
        input_size,
        config.hidden_size,
        bias=True,
        batch_first=False,
        matrix=partial(CirculantMatrix, config.hidden_size, config.spread),
        field="real",
        nonlinearity="modrelu",
        train_recurrent=True,
        proj_size=0,
        device=None,
        dtype=None,
        **options,
    )


CIRCULANT = Kind("own_matrix_and_task:CIRCULANT", "circulant RNN", build, CirculantSettings, colour="#117733")


@dataclass(frozen=True)
class FirstSymbol:
    """The settings of the task: sequences of T symbols, the first one of K, the others distractors, one of two."""

    T: int = 20
    K: int = 4
    sequences: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("T", "K", "sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"task.{name}: expected at least 1, got {getattr(self, name)}")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.K + 2, self.K, last_only=True, symbols=True)

    @property
    def label(self) -> str:
        return f"First symbol, T = {self.T}"

    def load(self, data_dir: str | Path | None = None) -> "FirstSymbolTask":
        return FirstSymbolTask(self)


class FirstSymbolTask(SequenceTask):
    """Symbols (T, B) in, the class of the whole sequence (B,) out."""

    symbols = True
    last_only = True
    measure = Measure("accuracy", lower_is_better=False)

    def __init__(self, problem: FirstSymbol) -> None:
        self.problem = problem
        self.input_size, self.output_size = problem.sizes[:2]
        self.baseline = 100 / problem.K

    def size(self, split: Split) -> int:
        return self.problem.sequences if split == "train" else self.problem.sequences // 5

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        # Symbol t of sequence i is a function of (seed, split, i, t) alone, so a run can resume at any batch.
        key = counter.derive_key(self.problem.seed, SPLITS.index(split))
        words = counter.random_words(key, indices * self.problem.T + np.arange(self.problem.T)[:, None])
        first = counter.below(words[:1], self.problem.K)
        distractors = self.problem.K + counter.below(words[1:], 2)
        return Batch(torch.from_numpy(np.concatenate([first, distractors])), torch.from_numpy(first[0]))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        return accuracy_score(outputs, batch.targets)
