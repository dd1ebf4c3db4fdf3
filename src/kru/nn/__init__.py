"""The layers: Kronecker recurrent units with the contract of `torch.nn.LSTM`, and a feed-forward layer."""

from kru.nn.gru import KRUGRU
from kru.nn.kru import KRU
from kru.nn.linear import KroneckerLinear
from kru.nn.lstm import KRULSTM

__all__ = ["KRU", "KRUGRU", "KRULSTM", "KroneckerLinear"]
