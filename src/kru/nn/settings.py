"""The settings of a model: what all kinds of recurrent layer have, and what each has of its own."""

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, Literal

Nonlinearity = Literal["modrelu", "tanh", "relu", "leaky_relu", "identity"]


@dataclass(frozen=True)
class ModelSettings:
    """Settings that every kind of model has: recurrent layers and a linear read-out. Created by `model_settings`."""

    kind: str
    """kind of layer: kru, kru-lstm, kru-gru, rnn, lstm, gru, rc-urnn, fc-urnn, ornn, eurnn, exprnn, antisymmetric,
    antisymmetric-gated, lru, lrd-gru, rhn, kru-rhn, hyper-lstm, kru-hyper-lstm, or module:name for your own"""
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
                    f"model.{dashed(name)}: expected from 0 to below 1, got {getattr(self, name)!r}"
                )
        if self.layer_dropout and self.num_layers == 1:
            raise ValueError(f"model.layer-dropout: expected 0 with one layer, got {self.layer_dropout}")
        _expect_positive(self, "input_scale")

    def __getattr__(self, name: str) -> Any:
        # Only called for names that are not a field of this kind's settings.
        raise AttributeError(f"model.{dashed(name)}: does not apply to {self.__dict__.get('kind', '')}")

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
        # The registry knows which settings a kind has, and imports them from here.
        from kru.nn.kinds import expect_settings, find_kind, model_settings

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
class DiagonalSettings(ModelSettings):
    """Settings of lru."""

    train_recurrent: bool = True
    """train the recurrent matrix; otherwise it keeps its initial values"""
    least: float = 0.0
    """smallest initial modulus of an eigenvalue"""
    most: float = 1.0
    """largest initial modulus of an eigenvalue"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.least <= self.most <= 1:
            raise ValueError(
                f"model.least, model.most: expected 0 <= least <= most <= 1, got {self.least!r} and {self.most!r}"
            )

    def layer_arguments(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("train_recurrent", "least", "most")}
        return {**super().layer_arguments(), **own}


@dataclass(frozen=True)
class LowRankDiagonalSettings(ModelSettings):
    """Settings of lrd-gru."""

    train_recurrent: bool = True
    """train the recurrent matrix; otherwise it keeps its initial values"""
    low_rank: int = 24
    """rank K of the low-rank part of the recurrent matrices"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 1, 2**24, "low_rank")

    def layer_arguments(self) -> dict[str, Any]:
        own = {"train_recurrent": self.train_recurrent, "low_rank": self.low_rank}
        return {**super().layer_arguments(), **own}


@dataclass(frozen=True)
class HighwaySettings(KroneckerSettings):
    """Settings of rhn and kru-rhn."""

    depth: int = 3
    """number L of highway layers in a time step"""
    gate_bias: float = -2.0
    """initial bias of the transform gates; below 0, the network remembers from the start"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 1, 2**24, "depth")
        if not isfinite(self.gate_bias):
            raise ValueError(f"model.gate-bias: expected a finite number, got {self.gate_bias!r}")

    def layer_arguments(self) -> dict[str, Any]:
        return {**super().layer_arguments(), "depth": self.depth, "gate_bias": self.gate_bias}


@dataclass(frozen=True)
class HyperSettings(KroneckerSettings):
    """Settings of hyper-lstm and kru-hyper-lstm."""

    hyper_size: int = 16
    """units M of the small LSTM"""
    embedding: int = 4
    """size K of the vectors from which the scales are computed"""
    layer_norm: bool = True
    """normalise gates and cells"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, 1, 2**24, "hyper_size", "embedding")

    def layer_arguments(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("hyper_size", "embedding", "layer_norm")}
        return {**super().layer_arguments(), **own}


def dashed(name: str) -> str:
    """The name of a setting as it is written on the command line."""
    return name.replace("_", "-")


def _expect(config: ModelSettings, low: int, high: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            raise ValueError(f"model.{dashed(name)}: expected {low} to 2^24, got {value!r}")


def _expect_positive(config: ModelSettings, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (isinstance(value, int) or isfinite(value)) or not value > 0:
            raise ValueError(f"model.{dashed(name)}: expected above 0, got {value!r}")
