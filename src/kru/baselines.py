"""The layers that the paper compares with, as `kru.baselines.RCURNN` and so on: see `kru.nn.baselines`."""

from kru.nn.baselines import EURNN, FCURNN, ORNN, RCURNN, AntisymmetricRNN, ExpRNN

__all__ = ["EURNN", "FCURNN", "ORNN", "RCURNN", "AntisymmetricRNN", "ExpRNN"]
