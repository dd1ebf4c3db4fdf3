"""Layers of torch.nn as layers of this library."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from kru.compression.dense_layers import dense_layer

MAKERS = {
    "tanh": lambda **o: nn.RNN(3, 4, **o),
    "relu": lambda **o: nn.RNN(3, 4, nonlinearity="relu", **o),
    "lstm": lambda **o: nn.LSTM(3, 4, **o),
    "gru": lambda **o: nn.GRU(3, 4, **o),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_same_function(kind: str, bias: bool) -> None:
    theirs = MAKERS[kind](num_layers=2, bidirectional=True, bias=bias, dtype=torch.float64)
    ours = dense_layer(theirs)
    x = torch.randn(6, 3, 3, dtype=torch.float64)
    packed = pack_padded_sequence(x, torch.tensor([2, 6, 4]), enforce_sorted=False)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(packed)[0].data, theirs(packed)[0].data)
    assert ours.weight_ih_l0.data_ptr() != theirs.weight_ih_l0.data_ptr()


def test_settings_are_kept() -> None:
    theirs = nn.LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.5).eval()
    ours = dense_layer(theirs)
    assert (ours.num_layers, ours.batch_first, ours.dropout) == (2, True, 0.5)
    assert not ours.training
    assert dense_layer(nn.GRU(3, 4).to(torch.bfloat16)).weight_ih_l0.dtype == torch.bfloat16
