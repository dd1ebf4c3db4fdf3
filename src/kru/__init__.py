"""Recurrent networks whose recurrent matrix is a Kronecker product of small, nearly unitary factors."""

from kru.factors import choose_factors
from kru.nn import KRU, KRUGRU, KRULSTM
from kru.ops import kron_dense, kron_matmul

__all__ = ["KRU", "KRUGRU", "KRULSTM", "choose_factors", "kron_dense", "kron_matmul"]
__version__ = "0.1.0"
