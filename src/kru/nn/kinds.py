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
from dataclasses import dataclass, fields
from typing import Any

from kru.linalg.factors import prime_factors
from kru.nn.baselines import (
    EURNN,
    FCURNN,
    LRDGRU,
    LRU,
    ORNN,
    RCURNN,
    RHN,
    AntisymmetricRNN,
    ExpRNN,
    HyperLSTM,
)
from kru.nn.gru import KRUGRU
from kru.nn.kru import KRU
from kru.nn.lookup import lookup
from kru.nn.lstm import KRULSTM
from kru.nn.recurrent import Recurrent
from kru.nn.settings import (
    AntisymmetricSettings,
    DenseSettings,
    DiagonalSettings,
    HighwaySettings,
    HyperSettings,
    KroneckerSettings,
    KRUSettings,
    LowRankDiagonalSettings,
    ModelSettings,
    Nonlinearity,
    ReflectionsSettings,
    RotationsSettings,
    UnitarySettings,
    dashed,
)

__all__ = [
    "KINDS",
    "Kind",
    "ModelSettings",
    "Nonlinearity",
    "build_layer",
    "expect_settings",
    "find_kind",
    "known_settings",
    "model_settings",
    "register",
]

ENTRY_POINTS = "kru.models"


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
                f"model.{dashed(name)}: does not apply to {kind}; expected one of "
                f"{', '.join(map(dashed, known))}"
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
                f"model.{dashed(name)}: expected {getattr(layer, name)} for {config.kind}, "
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


def _kronecker(layer: Callable[..., Recurrent]) -> Callable[[int, KroneckerSettings], Recurrent]:
    """A factory of a layer that is dense unless it is given factors: with the smallest ones, as in `kru.KRU`."""

    def build(input_size: int, config: KroneckerSettings) -> Recurrent:
        arguments = config.layer_arguments()
        arguments["factors"] = arguments["factors"] or prime_factors(config.hidden_size)
        return layer(input_size, config.hidden_size, **arguments)

    return build


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
    Kind("lru", "LRU", _layer(LRU), DiagonalSettings, "#117733", "--"),
    Kind("lrd-gru", "LRD-GRU", _layer(LRDGRU), LowRankDiagonalSettings, "#56B4E9", ":"),
    Kind("rhn", "RHN", _layer(RHN), HighwaySettings, "#AA4499", "--"),
    Kind("kru-rhn", "KRU-RHN", _kronecker(RHN), HighwaySettings, "#AA4499"),
    Kind("hyper-lstm", "HyperLSTM", _layer(HyperLSTM), HyperSettings, "#999933", "--"),
    Kind("kru-hyper-lstm", "KRU-HyperLSTM", _kronecker(HyperLSTM), HyperSettings, "#999933"),
):
    register(_kind)
