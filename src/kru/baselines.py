"""The layers that the paper compares with, as `kru.baselines.RCURNN` and so on: see `kru.nn.baselines`."""

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
