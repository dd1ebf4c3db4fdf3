"""Recurrent networks whose recurrent matrix is a Kronecker product of small, nearly unitary factors."""

from kru import baselines
from kru.compression import compress
from kru.factors import choose_factors
from kru.nearest import nearest_kronecker
from kru.nn import KRU, KRUGRU, KRULSTM, KroneckerLinear
from kru.ops import kron_dense, kron_matmul
from kru.optim import optimizer
from kru.parameters import parameter_count
from kru.penalty import unitary_penalty
from kru.spectrum import spectrum

__all__ = [
    "KRU",
    "KRUGRU",
    "KRULSTM",
    "KroneckerLinear",
    "baselines",
    "choose_factors",
    "compress",
    "kron_dense",
    "kron_matmul",
    "nearest_kronecker",
    "optimizer",
    "parameter_count",
    "spectrum",
    "unitary_penalty",
]
__version__ = "0.1.0"
