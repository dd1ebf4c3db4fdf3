"""What decides how a model is trained, as frozen dataclasses: optimiser, schedule, growth, validation and budget."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

BUDGET = ("steps", "epochs", "minutes")
"""The bounds of a budget; training ends at the first of them that is reached."""


@dataclass(frozen=True)
class OptimizerSettings:
    """RMSprop or Adam; the recurrent matrix has its own rate."""

    name: Literal["rmsprop", "adam"] = "rmsprop"
    """the optimiser"""
    lr: float = 1e-3
    """learning rate"""
    recurrent_scale: float = 1.0
    """rate of the recurrent matrix over the rate of the other weights"""
    input_scale: float = 1.0
    """rate of the input weights over the rate of the other weights"""
    decay: float = 0.9
    """decay of RMSprop's mean square; of Adam's second moment it is 0.999"""
    clip: float = 0.0
    """bound on the norm of the gradient; 0: none. KRU seldom needs one"""

    def __post_init__(self) -> None:
        expect("optimizer.lr", self.lr, "above 0", lambda value: value > 0)
        for name in ("recurrent_scale", "input_scale"):
            expect(f"optimizer.{dashed(name)}", getattr(self, name), "at least 0", lambda value: value >= 0)
        expect("optimizer.decay", self.decay, "from 0 to below 1", lambda value: 0 <= value < 1)
        expect("optimizer.clip", self.clip, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class ScheduleSettings:
    """How the rates fall: over the budget, and when the validation measure does not improve."""

    shape: Literal["constant", "cosine"] = "constant"
    """cosine: the rates fall to 0 along half a cosine over the budget, which a longer budget stretches"""
    factor: float = 1.0
    """what the rates are multiplied by when validation does not improve; 1: they stay"""
    patience: int = 0
    """validations without improvement that are borne before that"""
    stop_after: int = 0
    """validations in a row without improvement after which training stops; 0: never"""

    def __post_init__(self) -> None:
        expect("schedule.factor", self.factor, "above 0, at most 1", lambda value: 0 < value <= 1)
        expect("schedule.patience", self.patience, "at least 0", lambda value: value >= 0)
        expect("schedule.stop-after", self.stop_after, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class GrowthSettings:
    """How the recurrent matrix grows when the validation measure stalls; until it no longer can, rates fall
    only over the budget and training does not stop early."""

    max_parameters: int = 0
    """recurrent parameters up to which the matrix grows; 0: it stays as it is"""
    by: Literal["merge", "rank"] = "merge"
    """merge: neighbouring factors become one; rank: terms are added to the sum of Kronecker products"""
    patience: int = 2
    """validations without improvement that are borne before each step of growth"""
    gain: float = 0.0
    """how much better a measure must be to count as an improvement here, as a fraction of the best one"""
    factor: float = 2.0
    """each step goes on until there are so many times the recurrent parameters"""

    def __post_init__(self) -> None:
        expect("growth.max-parameters", self.max_parameters, "at least 0", lambda value: value >= 0)
        expect("growth.patience", self.patience, "at least 0", lambda value: value >= 0)
        expect("growth.gain", self.gain, "from 0 to below 1", lambda value: 0 <= value < 1)
        expect("growth.factor", self.factor, "at least 1", lambda value: value >= 1)


@dataclass(frozen=True)
class EvaluationSettings:
    """How the validation measure is taken during training."""

    every: int = 0
    """steps between validations; 0: once an epoch"""
    batch_size: int = 100
    """sequences at once (of a text: streams)"""
    sequences: int = 0
    """validation sequences used while training; 0: all. The figures at the end are over all"""

    def __post_init__(self) -> None:
        expect("evaluation.every", self.every, "at least 0", lambda value: value >= 0)
        expect("evaluation.batch-size", self.batch_size, "at least 1", lambda value: value >= 1)
        expect("evaluation.sequences", self.sequences, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that decides how a given model is trained on a given task."""

    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    growth: GrowthSettings = field(default_factory=GrowthSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    batch_size: int = 20
    """sequences in a step (of a text: streams)"""
    penalty: float = 0.0
    """strength of the soft unitary constraint"""
    average: float = 0.0
    """decay of a running average of the weights, which is then validated and kept in their place; 0: none"""
    steps: int = 0
    """budget in steps; 0: no bound. Training ends at the first bound of the three"""
    epochs: int = 0
    """budget in passes over the training data"""
    minutes: float = 0.0
    """budget in minutes of training; such a run is not exactly repeatable"""
    seed: int = 1
    """of the initial weights and of the order of the training data"""

    def __post_init__(self) -> None:
        expect("batch-size", self.batch_size, "at least 1", lambda value: value >= 1)
        expect("penalty", self.penalty, "at least 0", lambda value: value >= 0)
        expect("average", self.average, "from 0 to below 1", lambda value: 0 <= value < 1)
        for bound in BUDGET:
            expect(bound, getattr(self, bound), "at least 0", lambda value: value >= 0)
        expect("seed", self.seed, "0 to 2^63 - 1", lambda value: 0 <= value < 2**63)


def expect_budget(settings: TrainingSettings) -> None:
    """Raise if nothing would ever end the training."""
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
