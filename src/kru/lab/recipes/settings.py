"""A recipe: everything that decides what a run computes, as frozen dataclasses.

Recipes are written in TOML (`kru.lab.recipes.files`), and every field is also an option of the command line.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from typing import Annotated, Any, Literal

import tyro

from kru.lab.tasks import Adding, CopyMemory, Mnist, Music, PennTreebank, Timit

AnyProblem = CopyMemory | Adding | Mnist | PennTreebank | Music | Timit

PROBLEMS: dict[str, type[AnyProblem]] = {
    "copy": CopyMemory,
    "adding": Adding,
    "mnist": Mnist,
    "ptb": PennTreebank,
    "music": Music,
    "timit": Timit,
}
"""The names of the problems in recipes."""


@dataclass(frozen=True)
class ModelConfig:
    """The recurrent layer; a linear map of its states is the output."""

    kind: str = "kru"
    """which layer: kru, kru-lstm, kru-gru, rnn, lstm, gru, rc-urnn, fc-urnn, ornn, eurnn, exprnn, antisymmetric,
    antisymmetric-gated"""
    hidden_size: int = 128
    """units N"""
    factors: tuple[int, ...] = ()
    """sizes of the Kronecker factors; none: the prime factors of N (of kru, kru-lstm, kru-gru)"""
    rank: int = 1
    """how many Kronecker products the recurrent matrix is the sum of (of kru, kru-lstm, kru-gru)"""
    low_rank: bool = False
    """whether those are products of a column and a row, so that the matrix has the rank `rank`, in place of factors"""
    field: Literal["complex", "real"] = "complex"
    """field of kru"""
    nonlinearity: Literal["modrelu", "tanh", "relu", "leaky_relu", "identity"] = "modrelu"
    """of kru and the unitary networks"""
    constraint: Literal["soft", "exact", "none"] = "soft"
    """how factors are kept unitary: soft by the penalty, exact by construction"""
    train_recurrent: bool = True
    """whether the recurrent matrix is trained or stays as drawn"""
    input_scale: float = 1.0
    """factor on the initial input weights of the first layer"""
    initial_bias: float = 0.0
    """initial bias b of modReLU: 0 starts as a linear network; below 0, small states are forgotten"""
    recurrent_gain: float = 1.0
    """factor on the initial recurrent matrix W; below 1, the past fades from the start (of softly or not
    constrained factors)"""
    dropout: float = 0.0
    """probability with which a state's entry is hidden from the output map while training"""
    reflections: int = 0
    """Householder reflections K of ornn; 0: N"""
    capacity: int = 0
    """layers L of rotations between neighbours of eurnn; 0: the FFT arrangement, of log2 N layers"""
    step: float = 0.01
    """size epsilon of a step of antisymmetric and antisymmetric-gated"""
    diffusion: float = 0.01
    """gamma of antisymmetric and antisymmetric-gated"""
    spread: float = 1.0
    """of the initial recurrent entries of antisymmetric and antisymmetric-gated, times 1 / sqrt(N)"""

    def __post_init__(self) -> None:
        _expect("model.hidden-size", self.hidden_size, "1 to 2^24", lambda value: 1 <= value <= 2**24)
        _expect("model.rank", self.rank, "1 to 2^24", lambda value: 1 <= value <= 2**24)
        if self.low_rank and self.factors:
            raise ValueError(f"model.factors: expected none with model.low-rank, got {self.factors}")
        _expect("model.dropout", self.dropout, "from 0 to below 1", lambda value: 0 <= value < 1)
        for name in ("reflections", "capacity", "diffusion", "spread"):
            _expect(f"model.{name}", getattr(self, name), "0 to 2^24", lambda value: 0 <= value <= 2**24)
        for name in ("step", "input_scale", "recurrent_gain"):
            _expect(f"model.{_dashed(name)}", getattr(self, name), "above 0", lambda value: value > 0)


@dataclass(frozen=True)
class OptimizerConfig:
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
        _expect("optimizer.lr", self.lr, "above 0", lambda value: value > 0)
        for name in ("recurrent_scale", "input_scale"):
            _expect(f"optimizer.{_dashed(name)}", getattr(self, name), "at least 0", lambda value: value >= 0)
        _expect("optimizer.decay", self.decay, "from 0 to below 1", lambda value: 0 <= value < 1)
        _expect("optimizer.clip", self.clip, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class ScheduleConfig:
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
        _expect("schedule.factor", self.factor, "above 0, at most 1", lambda value: 0 < value <= 1)
        _expect("schedule.patience", self.patience, "at least 0", lambda value: value >= 0)
        _expect("schedule.stop-after", self.stop_after, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class GrowthConfig:
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
        _expect("growth.max-parameters", self.max_parameters, "at least 0", lambda value: value >= 0)
        _expect("growth.patience", self.patience, "at least 0", lambda value: value >= 0)
        _expect("growth.gain", self.gain, "from 0 to below 1", lambda value: 0 <= value < 1)
        _expect("growth.factor", self.factor, "at least 1", lambda value: value >= 1)


@dataclass(frozen=True)
class EvaluationConfig:
    """How the validation measure is taken during training."""

    every: int = 0
    """steps between validations; 0: once an epoch"""
    batch_size: int = 100
    """sequences at once (of a text: streams)"""
    sequences: int = 0
    """validation sequences used while training; 0: all. The figures at the end are over all"""

    def __post_init__(self) -> None:
        _expect("evaluation.every", self.every, "at least 0", lambda value: value >= 0)
        _expect("evaluation.batch-size", self.batch_size, "at least 1", lambda value: value >= 1)
        _expect("evaluation.sequences", self.sequences, "at least 0", lambda value: value >= 0)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a run computes."""

    task: AnyProblem
    """the problem and its settings"""
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    growth: GrowthConfig = field(default_factory=GrowthConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    batch_size: int = 20
    """sequences in a step (of a text: streams)"""
    penalty: float = 0.0
    """strength of the soft unitary constraint"""
    start: str = ""
    """weights to begin with in place of random ones: a .safetensors file, its ending left out or not, or the folder of
    a run of the same model; {seed} stands for the seed, {results} for the folder where results are recorded"""
    steps: int = 0
    """budget in steps; 0: no bound. Training ends at the first bound of the three"""
    epochs: int = 0
    """budget in passes over the training data"""
    minutes: float = 0.0
    """budget in minutes of training; such a run is not exactly repeatable"""
    seed: int = 1
    """of the initial weights and of the order of the training data"""
    name: Annotated[str, tyro.conf.Suppress] = ""
    """what the recipe is called"""
    expected_minutes: Annotated[float, tyro.conf.Suppress] = 0.0
    """what the budget takes on two cores, for the list of recipes"""

    def __post_init__(self) -> None:
        _expect("batch-size", self.batch_size, "at least 1", lambda value: value >= 1)
        _expect("penalty", self.penalty, "at least 0", lambda value: value >= 0)
        for bound in BUDGET:
            _expect(bound, getattr(self, bound), "at least 0", lambda value: value >= 0)
        _expect("seed", self.seed, "0 to 2^63 - 1", lambda value: 0 <= value < 2**63)


BUDGET = ("steps", "epochs", "minutes")


def settings(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe by their dotted names, as on the command line, the problem's name among them."""
    flat: dict[str, Any] = {"task": problem_name(recipe.task)}
    for outer in fields(recipe):
        value = getattr(recipe, outer.name)
        if is_dataclass(value):
            for inner in fields(value):
                flat[_dashed(f"{outer.name}.{inner.name}")] = getattr(value, inner.name)
        elif outer.name not in ("name", "expected_minutes"):
            flat[_dashed(outer.name)] = value
    return flat


def expect_budget(recipe: Recipe) -> None:
    """Raise if nothing would ever end the run."""
    if not any(getattr(recipe, bound) for bound in BUDGET):
        raise ValueError("budget: expected at least one of steps, epochs and minutes above 0, got none")


def problem_name(problem: AnyProblem) -> str:
    return next(name for name, kind in PROBLEMS.items() if isinstance(problem, kind))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _expect(name: str, value: float, wanted: str, holds: Callable[[float], bool]) -> None:
    # A whole number is finite, but can be too large for `isfinite`.
    if not ((isinstance(value, int) or isfinite(value)) and holds(value)):
        raise ValueError(f"{name}: expected {wanted}, got {value!r}")
