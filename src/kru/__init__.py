"""Recurrent networks whose recurrent matrix is a Kronecker product of small, nearly unitary factors."""

from typing import TYPE_CHECKING, Any

from kru import baselines, reservoir
from kru.compression import compress
from kru.linalg.factors import choose_factors
from kru.linalg.nearest import nearest_kronecker
from kru.nn import KRU, KRUGRU, KRULSTM, KroneckerLinear
from kru.nn.spectrum import spectrum
from kru.ops import kron_dense, kron_matmul
from kru.optim import optimizer
from kru.optim.parameters import parameter_count
from kru.optim.penalty import unitary_penalty

if TYPE_CHECKING:
    from kru.reservoir.random_projection import RandomProjection

__all__ = [
    "KRU",
    "KRUGRU",
    "KRULSTM",
    "KroneckerLinear",
    "RandomProjection",
    "baselines",
    "choose_factors",
    "compress",
    "kron_dense",
    "kron_matmul",
    "nearest_kronecker",
    "optimizer",
    "parameter_count",
    "reservoir",
    "spectrum",
    "unitary_penalty",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`RandomProjection` needs scikit-learn, the rest does not: it is imported when it is asked for."""
    if name == "RandomProjection":
        return reservoir.RandomProjection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
