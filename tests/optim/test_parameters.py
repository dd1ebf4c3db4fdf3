"""The sizes of the paper's models: a complex number counts twice, the output map reads [Re h ; Im h]."""

import pytest
import torch
from torch import nn

import kru

TABLE = {
    "copy memory": (lambda: kru.KRU(10, 128, train_recurrent=False), 10, 56, 5_314),
    "adding": (lambda: kru.KRU(2, 512), 1, 72, 3_657),
    "pixel MNIST": (lambda: kru.KRU(1, 512), 10, 72, 11_858),
    "PTB small": (lambda: kru.KRU(50, 411), 50, 37_556, 120_217),
    "PTB large": (lambda: kru.KRU(50, 993), 50, 219_140, 418_783),
    "PTB large LSTM": (lambda: kru.KRULSTM(50, 500, factors=[2, 250]), 50, 250_016, 377_066),
    "music": (lambda: kru.KRU(88, 100, field="real"), 88, 58, 17_846),
    "music LSTM": (lambda: kru.KRULSTM(88, 45), 88, 172, 20_240),
    "TIMIT": (lambda: kru.KRU(26, 2048, field="real", factors=[128, 16]), 61, 16_640, 196_925),
    "TIMIT LSTM": (lambda: kru.KRULSTM(26, 2048, factors=[128, 16]), 61, 66_560, 412_733),
}


@pytest.mark.parametrize("row", list(TABLE))
def test_counts_of_the_paper(row: str) -> None:
    build, outputs, recurrent, total = TABLE[row]
    layer = build()
    model = nn.ModuleList([layer, nn.Linear(layer.output_size, outputs)])
    assert kru.parameter_count(model) == (total, recurrent)


def test_shared_parameters_count_once() -> None:
    layer = kru.KRU(3, 4)
    assert kru.parameter_count(nn.ModuleList([layer, layer])) == kru.parameter_count(layer)


def test_complex_parameters_count_twice() -> None:
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(3, 4, dtype=torch.complex64))
    assert kru.parameter_count(module) == (24, 0)


def test_exact_factors_count_their_free_parameters() -> None:
    assert kru.parameter_count(kru.KRU(3, 15, constraint="exact")).recurrent == 9 + 25
    assert kru.parameter_count(kru.KRU(3, 15, field="real", constraint="exact")).recurrent == 3 + 10
    assert kru.parameter_count(kru.KRULSTM(3, 15, constraint="exact")).recurrent == 4 * (3 + 10)


@pytest.mark.parametrize(("kind", "gates"), [(nn.RNN, 1), (nn.LSTM, 4), (nn.GRU, 3)])
def test_recurrent_weights_of_torch_layers_count_as_recurrent(kind: type[nn.RNNBase], gates: int) -> None:
    layer = kind(3, 5, num_layers=2, bidirectional=True)
    assert kru.parameter_count(nn.Sequential(layer)).recurrent == 4 * gates * 25
    cell = {nn.RNN: nn.RNNCell, nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell}[kind](3, 5)
    assert kru.parameter_count(cell) == (sum(p.numel() for p in cell.parameters()), gates * 25)
