"""The models of recipes: a recurrent layer, found by name, and a linear map of its states."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kru.baselines import EURNN, FCURNN, ORNN, RCURNN, AntisymmetricRNN, ExpRNN
from kru.lab.recipes.settings import AnyProblem, ModelConfig
from kru.lab.tasks import Adding, CopyMemory, Mnist, Music, PennTreebank
from kru.lab.tasks.mfcc import FEATURES
from kru.lab.tasks.music import KEYS
from kru.lab.tasks.phones import FOLDED_PHONES, PHONES
from kru.matrices import KroneckerMatrix
from kru.nn import KRU, KRUGRU, KRULSTM
from kru.nn.baselines.base import Baseline
from kru.nn.recurrent import Recurrent
from kru.nn.states import State

Make = Callable[[int, ModelConfig], Recurrent]


class Model(nn.Module):
    """A recurrent layer and the output map, which reads all states or the last one.

    Args:
        layer: maps (T, B, D), or symbols (T, B), to states (T, B, S).
        output_size: C.
        last_only: whether outputs are (B, C), of the last step, in place of (T, B, C).
        dropout: probability with which an entry of a state is hidden from the output map while training. The
            recurrence itself always sees all of it.
    """

    def __init__(self, layer: Recurrent, output_size: int, *, last_only: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(layer.output_size, output_size)
        self.last_only = last_only

    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Outputs, and the state after the last step.

        Sequences that are shorter than T need no lengths here: nothing flows back in time, so what follows
        their end cannot touch the outputs before it.
        """
        states, last = self.layer(inputs, state)
        return self.output(self.dropout(states[-1] if self.last_only else states)), last


class Sizes(NamedTuple):
    """What a problem asks of a model."""

    inputs: int
    outputs: int
    last_only: bool
    symbols: bool = False
    """whether inputs are integers below `inputs`"""


def build_model(config: ModelConfig, sizes: Sizes) -> Model:
    """A model with initial weights from torch's global generator."""
    if config.kind not in LAYERS:
        raise ValueError(f"model.kind: expected one of {', '.join(LAYERS)}, got {config.kind!r}")
    layer = LAYERS[config.kind](sizes.inputs, config)
    _scale_initial_values(layer, config)
    model = Model(layer, sizes.outputs, last_only=sizes.last_only, dropout=config.dropout)
    nn.init.zeros_(model.output.bias)
    nn.init.xavier_uniform_(model.output.weight)
    return model


@torch.no_grad()
def _scale_initial_values(layer: Recurrent, config: ModelConfig) -> None:
    """Scale input weights and recurrent matrix as drawn, and set modReLU's bias, as the settings say."""
    layer.weight_ih_l0.mul_(config.input_scale)
    if config.initial_bias:
        if layer.nonlinearity != "modrelu":
            raise ValueError(
                f"model.initial-bias: expected 0 for {config.kind}, which has no modReLU, "
                f"got {config.initial_bias}"
            )
        layer.get_parameter("bias_l0").fill_(config.initial_bias)
    if config.recurrent_gain != 1:
        matrix = layer.matrix()
        if not isinstance(matrix, KroneckerMatrix):
            raise ValueError(
                f"model.recurrent-gain: expected 1 for {config.kind}, whose matrix keeps a form of its own, "
                f"got {config.recurrent_gain}"
            )
        factors = list(matrix.parameters())
        for factor in factors:  # alike, so that the penalty pulls at all of them
            factor.mul_(config.recurrent_gain ** (1 / len(factors)))


def seeded_model(config: ModelConfig, sizes: Sizes, seed: int) -> Model:
    """The model that a run with this seed begins with; the global generator is left seeded."""
    torch.manual_seed(seed)
    return build_model(config, sizes)


def problem_sizes(problem: AnyProblem) -> Sizes:
    """The sizes of a problem, known without its data."""
    if isinstance(problem, CopyMemory):
        return Sizes(10, 10, False, symbols=True)
    if isinstance(problem, Adding):
        return Sizes(2, 1, True)
    if isinstance(problem, Mnist):
        return Sizes(28 if problem.order == "rows" else 1, 10, True)
    if isinstance(problem, PennTreebank):
        return Sizes(50, 50, False, symbols=True)
    if isinstance(problem, Music):
        return Sizes(KEYS, KEYS, False)
    return Sizes(FEATURES, len(FOLDED_PHONES if problem.folded else PHONES), False)


def _factors(config: ModelConfig) -> Sequence[int | tuple[int, int]] | None:
    if config.low_rank:
        return [(config.hidden_size, 1), (1, config.hidden_size)]
    return config.factors or None


def _kru(inputs: int, config: ModelConfig) -> Recurrent:
    return KRU(
        inputs,
        config.hidden_size,
        factors=_factors(config),
        field=config.field,
        nonlinearity=config.nonlinearity,
        constraint=config.constraint,
        train_recurrent=config.train_recurrent,
        rank=config.rank,
    )


def _gated(kind: type[KRULSTM] | type[KRUGRU]) -> Make:
    def make(inputs: int, config: ModelConfig) -> Recurrent:
        return kind(
            inputs,
            config.hidden_size,
            factors=_factors(config),
            constraint=config.constraint,
            train_recurrent=config.train_recurrent,
            rank=config.rank,
        )

    return make


def _dense_rnn(inputs: int, config: ModelConfig) -> Recurrent:
    size = config.hidden_size
    return KRU(inputs, size, factors=[size], field="real", nonlinearity="tanh", constraint="none")


def _dense_gated(kind: type[KRULSTM] | type[KRUGRU]) -> Make:
    def make(inputs: int, config: ModelConfig) -> Recurrent:
        return kind(inputs, config.hidden_size, factors=[config.hidden_size], constraint="none")

    return make


def _baseline(kind: type[Baseline], own: Callable[[ModelConfig], dict[str, Any]] = lambda config: {}) -> Make:
    def make(inputs: int, config: ModelConfig) -> Recurrent:
        return kind(
            inputs,
            config.hidden_size,
            nonlinearity=config.nonlinearity,
            train_recurrent=config.train_recurrent,
            **own(config),
        )

    return make


def _reflections(config: ModelConfig) -> dict[str, Any]:
    return {"reflections": config.reflections or None}


def _rotations(config: ModelConfig) -> dict[str, Any]:
    return {"capacity": config.capacity} if config.capacity else {"arrangement": "fft"}


def _antisymmetric(gated: bool) -> Make:
    def make(inputs: int, config: ModelConfig) -> Recurrent:
        return AntisymmetricRNN(
            inputs,
            config.hidden_size,
            gated=gated,
            step=config.step,
            diffusion=config.diffusion,
            spread=config.spread,
            train_recurrent=config.train_recurrent,
        )

    return make


# The ordinary layers are those of this library with one dense factor: the same equations as in torch.nn (the
# tests compare them with copied weights), an orthogonal start (which favours them), one bias, and several times
# as fast over long sequences on a CPU.
LAYERS: dict[str, Make] = {
    "kru": _kru,
    "kru-lstm": _gated(KRULSTM),
    "kru-gru": _gated(KRUGRU),
    "rnn": _dense_rnn,
    "lstm": _dense_gated(KRULSTM),
    "gru": _dense_gated(KRUGRU),
    "rc-urnn": _baseline(RCURNN),
    "fc-urnn": _baseline(FCURNN),
    "ornn": _baseline(ORNN, _reflections),
    "eurnn": _baseline(EURNN, _rotations),
    "exprnn": _baseline(ExpRNN),
    "antisymmetric": _antisymmetric(False),
    "antisymmetric-gated": _antisymmetric(True),
}
"""How each kind of layer is made from the input size and its settings."""
