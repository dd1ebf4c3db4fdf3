"""A recipe: everything that decides what a run computes, as frozen dataclasses.

Recipes are written in TOML (`kru.lab.recipes.files`), and every field is also an option of the command line.
"""

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal

import tyro

from kru.lab.tasks import Adding, CopyMemory, Mnist, Music, PennTreebank, Timit
from kru.training.settings import TrainingSettings, dashed, expect

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
        expect("model.hidden-size", self.hidden_size, "1 to 2^24", lambda value: 1 <= value <= 2**24)
        expect("model.rank", self.rank, "1 to 2^24", lambda value: 1 <= value <= 2**24)
        if self.low_rank and self.factors:
            raise ValueError(f"model.factors: expected none with model.low-rank, got {self.factors}")
        expect("model.dropout", self.dropout, "from 0 to below 1", lambda value: 0 <= value < 1)
        for name in ("reflections", "capacity", "diffusion", "spread"):
            expect(f"model.{name}", getattr(self, name), "0 to 2^24", lambda value: 0 <= value <= 2**24)
        for name in ("step", "input_scale", "recurrent_gain"):
            expect(f"model.{dashed(name)}", getattr(self, name), "above 0", lambda value: value > 0)


@dataclass(frozen=True)
class Recipe(TrainingSettings):
    """Everything that decides what a run computes."""

    task: AnyProblem = field(kw_only=True)
    """the problem and its settings"""
    model: ModelConfig = field(default_factory=ModelConfig, kw_only=True)
    start: str = field(default="", kw_only=True)
    """weights to begin with in place of random ones: a .safetensors file, its ending left out or not, or the folder of
    a run of the same model; {seed} stands for the seed, {results} for the folder where results are recorded"""
    name: Annotated[str, tyro.conf.Suppress] = field(default="", kw_only=True)
    """what the recipe is called"""
    expected_minutes: Annotated[float, tyro.conf.Suppress] = field(default=0.0, kw_only=True)
    """what the budget takes on two cores, for the list of recipes"""


def settings(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe by their dotted names, as on the command line, the problem's name among them."""
    flat: dict[str, Any] = {"task": problem_name(recipe.task)}
    for outer in fields(recipe):
        value = getattr(recipe, outer.name)
        if is_dataclass(value):
            for inner in fields(value):
                flat[dashed(f"{outer.name}.{inner.name}")] = getattr(value, inner.name)
        elif outer.name not in ("name", "expected_minutes"):
            flat[dashed(outer.name)] = value
    return flat


def problem_name(problem: AnyProblem) -> str:
    return next(name for name, kind in PROBLEMS.items() if isinstance(problem, kind))
