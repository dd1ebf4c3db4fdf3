"""The kinds of recurrent layer, each registered once: label, colour, how it is built, its own settings.

>>> from kru.nn.kinds import build_layer, model_settings
>>> build_layer(model_settings("ornn", 16, reflections=4), input_size=3)
ORNN(
  3, 16, nonlinearity=modrelu, learn_initial=True
  (recurrent_l0): HouseholderMatrix(16x16, field=real, constraint=exact, reflections=4)
)

A kind of your own is a `Kind` that you `register`, that an installed package offers as an entry point of the group
``kru.models``, or that a recipe names as ``module:name``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, Literal

from kru.nn.baselines import EURNN, FCURNN, ORNN, RCURNN, AntisymmetricRNN, ExpRNN
from kru.nn.gru import KRUGRU
from kru.nn.kru import KRU
from kru.nn.lookup import lookup
from kru.nn.lstm import KRULSTM
from kru.nn.recurrent import Recurrent

ENTRY_POINTS = "kru.models"

Nonlinearity = Literal["modrelu", "tanh", "relu", "leaky_relu", "identity"]


@dataclass(frozen=True)
class ModelSettings:
    """Settings that every kind of model has: recurrent layers and a linear read-out. Created by `model_settings`."""

    kind: str
    """kind of layer: kru, kru-lstm, kru-gru, rnn, lstm, gru, rc-urnn, fc-urnn, ornn, eurnn, exprnn, antisymmetric,
    antisymmetric-gated, or module:name for one of your own"""
    hidden_size: int = 128
    """number of units N"""
    num_layers: int = 1
    """number of stacked recurrent layers"""
    bidirectional: bool = False
    """read the sequence in both directions, with separate weights"""
    layer_dropout: float = 0.0
    """dropout probability between layers"""
    dropout: float = 0.0
    """dropout probability before the output map"""
    readout: Literal["task", "last", "mean", "all"] = "task"
    """what the output map reads: the last step of each sequence (without padding), the mean over its steps, all steps,
    or what the task needs"""
    input_scale: float = 1.0
    """scale of the initial input weights"""

    def __post_init__(self) -> None:
        _expect(self, 1, 2**24, "hidden_size", "num_layers")
        for name in ("layer_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"model.{_dashed(name)}: expected from 0 to below 1, got {getattr(self, name)!r}"
                )
        if self.layer_dropout and self.num_layers == 1:
            raise ValueError(f"model.layer-dropout: expected 0 with one layer, got {self.layer_dropout}")
        _expect_positive(self, "input_scale")

    def __getattr__(self, name: str) -> Any:
        # Only called for names that are not a field of this kind's settings.
        raise AttributeError(f"model.{_dashed(name)}: does not apply to {self.__dict__.get('kind', '')}")

    def layer_arguments(self) -> dict[str, Any]:
        """The arguments of the layer that these settings determine."""
        return {
            "num_layers": self.num_layers,
            "dropout": self.layer_dropout,
            "bidirectional": self.bidirectional,
            "input_scale": self.input_scale,
        }

    def changed(self, kind: str = "", **settings: Any) -> "ModelSettings":
        """The same model with some settings changed. A new kind keeps the settings that both kinds have."""
        kind = kind or self.kind
        if kind == self.kind:
            expect_settings(kind, settings)
            return replace(self, **settings)
        applies = {entry.name for entry in fields(find_kind(kind).settings)} - {"kind"}
        shared = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name in applies}
        return model_settings(kind, **shared | settings)


@dataclass(frozen=True)
class DenseSettings(ModelSettings):
    """Settings of rnn, lstm and gru."""

    recurrent_gain: float = 1.0
    """scale of the initial recurrent matrix W; below 1, the network forgets from the start"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_positive(self, "recurrent_gain")

    def layer_arguments(self) -> dict[str, Any]:
        return {**super().layer_arguments(), "recurrent_gain": self.recurrent_gain}


@dataclass(frozen=True)
class KroneckerSettings(ModelSettings):
    """Settings of kru-lstm and kru-gru."""

    factors: tuple[int, ...] = ()
    """sizes of the Kronecker factors; default: the prime factors of N"""
    rank: int = 1
    """number of Kronecker products that are summed in the recurrent matrix"""
    low_rank: bool = False
    """use a matrix of low rank, `rank`, instead of Kronecker factors"""
    constraint: Literal["soft", "exact", "none"] = "soft"
    """how factors are kept unitary: soft: by the penalty; exact: by construction; none: not at all"""
    train_recurrent: bool = True
    """train the recurrent matrix; otherwise it keeps its initial values"""
    recurrent_gain: float = 1.0
    """scale of the initial recurrent matrix W; below 1, the network forgets from the start (not with exact)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 1, 2**24, "rank")
        _expect_positive(self, "recurrent_gain")
        if self.low_rank and self.factors:
            raise ValueError(f"model.factors: expected none with model.low-rank, got {self.factors}")

    def layer_arguments(self) -> dict[str, Any]:
        column_and_row = [(self.hidden_size, 1), (1, self.hidden_size)]
        return {
            **super().layer_arguments(),
            "factors": column_and_row if self.low_rank else self.factors or None,
            "constraint": self.constraint,
            "train_recurrent": self.train_recurrent,
            "rank": self.rank,
            "recurrent_gain": self.recurrent_gain,
        }


@dataclass(frozen=True)
class KRUSettings(KroneckerSettings):
    """Settings of kru."""

    field: Literal["complex", "real"] = "complex"
    """field of the states and the recurrent matrix"""
    nonlinearity: Nonlinearity = "modrelu"
    """nonlinearity of the states"""
    initial_bias: float = 0.0
    """initial bias b of modReLU; 0: the network starts linear; below 0: small states are forgotten"""

    def layer_arguments(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("field", "nonlinearity", "initial_bias")}
        return {**super().layer_arguments(), **own}


@dataclass(frozen=True)
class UnitarySettings(ModelSettings):
    """Settings of rc-urnn, fc-urnn and exprnn."""

    nonlinearity: Nonlinearity = "modrelu"
    """nonlinearity of the states"""
    train_recurrent: bool = True
    """train the recurrent matrix; otherwise it keeps its initial values"""
    initial_bias: float = 0.0
    """initial bias b of modReLU; 0: the network starts linear; below 0: small states are forgotten"""

    def layer_arguments(self) -> dict[str, Any]:
        return {
            **super().layer_arguments(),
            "nonlinearity": self.nonlinearity,
            "train_recurrent": self.train_recurrent,
            "initial_bias": self.initial_bias,
        }


@dataclass(frozen=True)
class ReflectionsSettings(UnitarySettings):
    """Settings of ornn."""

    reflections: int = 0
    """number of Householder reflections K; 0: N"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 0, 2**24, "reflections")

    def layer_arguments(self) -> dict[str, Any]:
        return {**super().layer_arguments(), "reflections": self.reflections or None}


@dataclass(frozen=True)
class RotationsSettings(UnitarySettings):
    """Settings of eurnn."""

    capacity: int = 0
    """number L of layers of rotations between neighbours; 0: the FFT arrangement with log2 N layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 0, 2**24, "capacity")

    def layer_arguments(self) -> dict[str, Any]:
        arrangement = {"capacity": self.capacity} if self.capacity else {"arrangement": "fft"}
        return {**super().layer_arguments(), **arrangement}


@dataclass(frozen=True)
class AntisymmetricSettings(ModelSettings):
    """Settings of antisymmetric and antisymmetric-gated."""

    train_recurrent: bool = True
    """train the recurrent matrix; otherwise it keeps its initial values"""
    step: float = 0.01
    """step size epsilon"""
    diffusion: float = 0.01
    """diffusion gamma"""
    spread: float = 1.0
    """standard deviation of the initial recurrent entries, times sqrt(N)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 0, 2**24, "diffusion", "spread")
        _expect_positive(self, "step")

    def layer_arguments(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("train_recurrent", "step", "diffusion", "spread")}
        return {**super().layer_arguments(), **own}


@dataclass(frozen=True)
class Kind:
    """A kind of recurrent layer.

    Attributes:
        name: what recipes call it.
        label: what tables and legends call it.
        build: builds the layer from the input size and the settings.
        settings: its settings, a frozen dataclass that extends `ModelSettings`.
        colour, dash: of its curves, as Matplotlib spells them.
    """

    name: str
    label: str
    build: Callable[[int, Any], Recurrent]
    settings: type[ModelSettings] = ModelSettings
    colour: str = "#332288"
    dash: str = "-"


KINDS: dict[str, Kind] = {}
"""The kinds that are registered, by name."""


def register(kind: Kind) -> Kind:
    """Register a kind under its name, which has to be unique."""
    if kind.name in KINDS and KINDS[kind.name] != kind:
        raise ValueError(f"kind: expected a name that is not taken, got {kind.name!r}")
    KINDS[kind.name] = kind
    return kind


def find_kind(name: str, *, imports: bool = False) -> Kind:
    """The kind of this name: a registered one, an entry point, or ``module:name``.

    Args:
        imports: whether a module that ``module:name`` names may be imported, which runs it. Only for names that the
            user wrote in a recipe or on the command line, never for those in a file of weights.
    """
    found: Kind = lookup(
        name, KINDS, ENTRY_POINTS, "model.kind", lambda found: isinstance(found, Kind), imports=imports
    )
    return found


def model_settings(kind: str = "kru", hidden_size: int = 128, **settings: Any) -> ModelSettings:
    """The settings of a kind of model; settings that are not given have their defaults."""
    expect_settings(kind, settings)
    return find_kind(kind).settings(kind=kind, hidden_size=hidden_size, **settings)


def expect_settings(kind: str, names: Mapping[str, Any] | Sequence[str]) -> None:
    """Raise if a setting does not apply to a kind."""
    known = [entry.name for entry in fields(find_kind(kind).settings)]
    for name in names:
        if name not in known:
            raise ValueError(
                f"model.{_dashed(name)}: does not apply to {kind}; expected one of "
                f"{', '.join(map(_dashed, known))}"
            )


def known_settings() -> set[str]:
    """The settings that at least one registered kind has."""
    return {entry.name for kind in KINDS.values() for entry in fields(kind.settings)}


def build_layer(config: ModelSettings, input_size: int) -> Recurrent:
    """The recurrent layer of some settings, with initial weights from torch's global generator."""
    layer = find_kind(config.kind).build(input_size, config)
    for name in ("num_layers", "bidirectional"):
        if getattr(layer, name) != getattr(config, name):
            raise ValueError(
                f"model.{_dashed(name)}: expected {getattr(layer, name)} for {config.kind}, "
                f"got {getattr(config, name)}"
            )
    return layer


def _layer(layer: Callable[..., Recurrent]) -> Callable[[int, ModelSettings], Recurrent]:
    """A factory of a layer whose arguments are its settings."""

    def build(input_size: int, config: ModelSettings) -> Recurrent:
        return layer(input_size, config.hidden_size, **config.layer_arguments())

    return build


def _dense(layer: Callable[..., Recurrent], **own: Any) -> Callable[[int, ModelSettings], Recurrent]:
    """A factory of an ordinary layer: the layer of this library with one dense factor.

    It has the same equations as in torch.nn (the tests compare them with copied weights), an orthogonal initial matrix
    (which favours it) and one bias, and is several times as fast over long sequences on a CPU.
    """

    def build(input_size: int, config: ModelSettings) -> Recurrent:
        size = config.hidden_size
        return layer(input_size, size, factors=[size], constraint="none", **own, **config.layer_arguments())

    return build


def _antisymmetric(gated: bool) -> Callable[[int, ModelSettings], Recurrent]:
    def build(input_size: int, config: ModelSettings) -> Recurrent:
        return AntisymmetricRNN(input_size, config.hidden_size, gated=gated, **config.layer_arguments())

    return build


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _expect(config: ModelSettings, low: int, high: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            raise ValueError(f"model.{_dashed(name)}: expected {low} to 2^24, got {value!r}")


def _expect_positive(config: ModelSettings, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (isinstance(value, int) or isfinite(value)) or not value > 0:
            raise ValueError(f"model.{_dashed(name)}: expected above 0, got {value!r}")


# The colours are the palette of Okabe and Ito and three of Tol's: colour-blind people can tell them apart.
for _kind in (
    Kind("kru", "KRU", _layer(KRU), KRUSettings, "#D55E00"),
    Kind("kru-lstm", "KRU-LSTM", _layer(KRULSTM), KroneckerSettings, "#E69F00"),
    Kind("kru-gru", "KRU-GRU", _layer(KRUGRU), KroneckerSettings, "#CC79A7"),
    Kind("rnn", "RNN", _dense(KRU, field="real", nonlinearity="tanh"), DenseSettings, "#999999", "-."),
    Kind("lstm", "LSTM", _dense(KRULSTM), DenseSettings, "#0072B2", "--"),
    Kind("gru", "GRU", _dense(KRUGRU), DenseSettings, "#56B4E9", "-."),
    Kind("rc-urnn", "RC uRNN", _layer(RCURNN), UnitarySettings, "#009E73"),
    Kind("fc-urnn", "FC uRNN", _layer(FCURNN), UnitarySettings, "#000000"),
    Kind("ornn", "oRNN", _layer(ORNN), ReflectionsSettings, "#F0E442"),
    Kind("eurnn", "EURNN", _layer(EURNN), RotationsSettings, "#009E73", ":"),
    Kind("exprnn", "expRNN", _layer(ExpRNN), UnitarySettings, "#882255"),
    Kind("antisymmetric", "AntisymmetricRNN", _antisymmetric(False), AntisymmetricSettings, "#44AA99"),
    Kind(
        "antisymmetric-gated",
        "AntisymmetricRNN, gated",
        _antisymmetric(True),
        AntisymmetricSettings,
        "#44AA99",
        "--",
    ),
):
    register(_kind)
