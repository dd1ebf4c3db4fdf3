"""The recurrent networks that the paper compares with, and later ones of the same kind, as layers.

Each has the contract of `torch.nn.LSTM`, as `kru.KRU` has. The ordinary RNN, LSTM and GRU are `kru.KRU` in the
real field with tanh, `kru.KRULSTM` and `kru.KRUGRU` with one dense factor, ``factors=[hidden_size]``.
"""

from kru.nn.baselines.antisymmetric import AntisymmetricRNN
from kru.nn.baselines.eurnn import EURNN
from kru.nn.baselines.exprnn import ExpRNN
from kru.nn.baselines.fc_urnn import FCURNN
from kru.nn.baselines.hyper_lstm import HyperLSTM
from kru.nn.baselines.lrd_gru import LRDGRU
from kru.nn.baselines.lru import LRU
from kru.nn.baselines.ornn import ORNN
from kru.nn.baselines.rc_urnn import RCURNN
from kru.nn.baselines.rhn import RHN

__all__ = [
    "EURNN",
    "FCURNN",
    "LRDGRU",
    "LRU",
    "ORNN",
    "RCURNN",
    "RHN",
    "AntisymmetricRNN",
    "ExpRNN",
    "HyperLSTM",
]
