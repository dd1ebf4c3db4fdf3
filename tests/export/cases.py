"""The layers that every format is tested with."""

from collections.abc import Callable

import torch

import kru
from kru import baselines
from kru.nn.recurrent import Recurrent

D, N, LAYERS = 3, 12, 2

STREAMS: dict[str, Callable[[], Recurrent]] = {
    "complex": lambda: kru.KRU(D, N, LAYERS),
    "complex tanh": lambda: kru.KRU(D, N, nonlinearity="tanh"),
    "complex, no bias": lambda: kru.KRU(D, N, bias=False),
    "complex, rectangular": lambda: kru.KRU(D, 60, factors=[(6, 10), (10, 6)]),
    "complex, exact": lambda: kru.KRU(D, N, constraint="exact"),
    "complex, one factor": lambda: kru.KRU(1, 5),
    "complex, large factors": lambda: kru.KRU(D, 360, factors=[18, 20]),
    "complex, rank 3": lambda: kru.KRU(D, 6, rank=3),
    "real": lambda: kru.KRU(D, N, LAYERS, field="real"),
    "real relu": lambda: kru.KRU(D, 60, field="real", nonlinearity="relu", factors=[(10, 6), (6, 10)]),
    "real identity": lambda: kru.KRU(1, 1, field="real", nonlinearity="identity"),
    "lstm": lambda: kru.KRULSTM(D, N, LAYERS, dropout=0.5),
    "lstm, large factors": lambda: kru.KRULSTM(17, 64, factors=[2, 32]),
    "lstm, one factor": lambda: kru.KRULSTM(D, 20, factors=[20], bias=False),
    "oRNN": lambda: baselines.ORNN(D, 6, nonlinearity="leaky_relu"),
    "EURNN": lambda: baselines.EURNN(D, 6),
    "lstm, rank 2": lambda: kru.KRULSTM(D, 64, factors=[2, 32], rank=2),
    "lstm, one factor of rank 2": lambda: kru.KRULSTM(D, 5, rank=2),
    "gru": lambda: kru.KRUGRU(D, N, LAYERS),
    "gru, no bias": lambda: kru.KRUGRU(D, 18, factors=[18], bias=False),
}
"""Layers with one direction."""

BIDIRECTIONAL: dict[str, Callable[[], Recurrent]] = {
    "complex, both directions": lambda: kru.KRU(D, N, LAYERS, bidirectional=True),
    "gru, both directions": lambda: kru.KRUGRU(D, N, LAYERS, bidirectional=True, batch_first=True),
}


def build(make: Callable[[], Recurrent], recurrent_noise: float = 0.01) -> Recurrent:
    """A layer whose weights are all different from their initial values, its matrix still near unitary."""
    torch.manual_seed(0)
    layer = make()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            scale = recurrent_noise if name.startswith("recurrent_l") else 0.3
            parameter.add_(scale * torch.randn_like(parameter))
    return layer.eval()


def inputs(layer: Recurrent, *leading: int, symbols: bool = False) -> torch.Tensor:
    if symbols:
        return torch.randint(layer.input_size, leading)
    return torch.randn(*leading, layer.input_size)


def state_tuple(state: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def random_state(layer: Recurrent, batch: int) -> tuple[torch.Tensor, ...]:
    shape = layer.num_layers, batch, layer.state_size
    return tuple(0.5 * torch.randn(shape) for _ in layer.states)


def as_state(states: tuple[torch.Tensor, ...]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return states if len(states) > 1 else states[0]
