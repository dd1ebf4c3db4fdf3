"""The recurrent networks that the paper compares with, and later ones of the same kind, as layers.

Each has the contract of `torch.nn.LSTM`, as `kru.KRU` has. The ordinary RNN, LSTM and GRU are `kru.KRU` in the
real field with tanh, `kru.KRULSTM` and `kru.KRUGRU` with one dense factor, ``factors=[hidden_size]``.
"""

from kru.nn.antisymmetric import AntisymmetricRNN
from kru.nn.eurnn import EURNN
from kru.nn.exprnn import ExpRNN
from kru.nn.fc_urnn import FCURNN
from kru.nn.ornn import ORNN
from kru.nn.rc_urnn import RCURNN

__all__ = ["EURNN", "FCURNN", "ORNN", "RCURNN", "AntisymmetricRNN", "ExpRNN"]
