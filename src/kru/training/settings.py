"""The settings of training as frozen dataclasses: optimiser, schedule, growth, validation and budget."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

BUDGET = ("steps", "epochs", "minutes")
"""The limits of a budget; training ends at the first one that is reached."""


@dataclass(frozen=True)
class OptimizerSettings:
    """RMSprop or Adam, with a separate learning rate for the recurrent matrix."""

    name: Literal["rmsprop", "adam"] = "rmsprop"
    """optimiser"""
    lr: float = 1e-3
    """learning rate"""
    recurrent_scale: float = 1.0
    """learning rate of the recurrent matrix, as a fraction of lr"""
    input_scale: float = 1.0
    """learning rate of the input weights, as a fraction of lr"""
    decay: float = 0.9
    """decay of RMSprop's running mean square (Adam always uses 0.999)"""
    clip: float = 0.0
    """maximum gradient norm; 0: no clipping, which KRU seldom needs"""

    def __post_init__(self) -> None:
        expect("optimizer.lr", self.lr, "above 0", lambda value: value > 0)
        for name in ("recurrent_scale", "input_scale"):
            expect(f"optimizer.{dashed(name)}", getattr(self, name), "at least 0", lambda value: value >= 0)
        expect("optimizer.decay", self.decay, "from 0 to below 1", lambda value: 0 <= value < 1)
        expect("optimizer.clip", self.clip, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class ScheduleSettings:
    """How the learning rates fall: over the budget, and when the validation measure stops improving."""

    shape: Literal["constant", "cosine"] = "constant"
    """cosine: the learning rates fall to 0 along half a cosine over the budget"""
    factor: float = 1.0
    """factor on the learning rates when validation stops improving; 1: no change"""
    patience: int = 0
    """validation rounds to wait for an improvement before that"""
    stop_after: int = 0
    """validation rounds without improvement after which training stops; 0: never"""

    def __post_init__(self) -> None:
        expect("schedule.factor", self.factor, "above 0, at most 1", lambda value: 0 < value <= 1)
        expect("schedule.patience", self.patience, "at least 0", lambda value: value >= 0)
        expect("schedule.stop-after", self.stop_after, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class GrowthSettings:
    """How the recurrent matrix grows when the validation measure stops improving.

    While the matrix can still grow, learning rates fall only over the budget, and training does not stop early.
    """

    max_parameters: int = 0
    """maximum number of recurrent parameters to grow to; 0: no growth"""
    by: Literal["merge", "rank"] = "merge"
    """merge: merge neighbouring factors; rank: add terms to the sum of Kronecker products"""
    patience: int = 2
    """validation rounds to wait for an improvement before each step of growth"""
    gain: float = 0.0
    """smallest improvement that counts for growth, as a fraction of the best measure"""
    factor: float = 2.0
    """factor by which each step of growth multiplies the number of recurrent parameters, at least"""

    def __post_init__(self) -> None:
        expect("growth.max-parameters", self.max_parameters, "at least 0", lambda value: value >= 0)
        expect("growth.patience", self.patience, "at least 0", lambda value: value >= 0)
        expect("growth.gain", self.gain, "from 0 to below 1", lambda value: 0 <= value < 1)
        expect("growth.factor", self.factor, "at least 1", lambda value: value >= 1)


@dataclass(frozen=True)
class EvaluationSettings:
    """How often and on what data a model is validated during training."""

    every: int = 0
    """steps between validation rounds; 0: once per epoch"""
    batch_size: int = 100
    """batch size of validation (for text: number of streams)"""
    sequences: int = 0
    """validation sequences to use during training; 0: all. The final evaluation always uses all"""

    def __post_init__(self) -> None:
        expect("evaluation.every", self.every, "at least 0", lambda value: value >= 0)
        expect("evaluation.batch-size", self.batch_size, "at least 1", lambda value: value >= 1)
        expect("evaluation.sequences", self.sequences, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class TrainingSettings:
    """All settings of training, apart from the model and the task."""

    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    growth: GrowthSettings = field(default_factory=GrowthSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    batch_size: int = 20
    """sequences per step (for text: number of streams)"""
    penalty: float = 0.0
    """strength of the soft unitary constraint"""
    average: float = 0.0
    """decay of a running average of the weights, which is validated and saved instead of them; 0: no average"""
    steps: int = 0
    """budget in steps; 0: no limit. Training ends at the first limit that is reached"""
    epochs: int = 0
    """budget in epochs"""
    minutes: float = 0.0
    """budget in minutes of training; not exactly reproducible"""
    seed: int = 1
    """random seed of the initial weights and the order of the training data"""

    def __post_init__(self) -> None:
        expect("batch-size", self.batch_size, "at least 1", lambda value: value >= 1)
        expect("penalty", self.penalty, "at least 0", lambda value: value >= 0)
        expect("average", self.average, "from 0 to below 1", lambda value: 0 <= value < 1)
        for bound in BUDGET:
            expect(bound, getattr(self, bound), "at least 0", lambda value: value >= 0)
        expect("seed", self.seed, "0 to 2^63 - 1", lambda value: 0 <= value < 2**63)


def expect_budget(settings: TrainingSettings) -> None:
    """Raise if the budget has no limit."""
    if not any(getattr(settings, bound) for bound in BUDGET):
        raise ValueError("budget: expected at least one of steps, epochs and minutes above 0, got none")


def dashed(name: str) -> str:
    """The name of a setting as it is written on the command line."""
    return name.replace("_", "-")


def expect(name: str, value: float, wanted: str, holds: Callable[[float], bool]) -> None:
    """Raise unless a setting is finite and `holds` of it; `wanted` says in words what is allowed."""
    # A whole number is finite, but can be too large for `isfinite`.
    if not ((isinstance(value, int) or isfinite(value)) and holds(value)):
        raise ValueError(f"{name}: expected {wanted}, got {value!r}")
