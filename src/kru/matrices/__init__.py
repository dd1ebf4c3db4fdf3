"""How a recurrent matrix is parametrised: one kind of module each, with Kronecker factors for the scan."""

from kru.matrices.antisymmetric import AntisymmetricMatrix
from kru.matrices.base import RecurrentMatrix
from kru.matrices.chain import ChainMatrix
from kru.matrices.diagonal import StableDiagonal
from kru.matrices.exponential import ExponentialMatrix
from kru.matrices.full_unitary import FullUnitaryMatrix
from kru.matrices.householder import HouseholderMatrix
from kru.matrices.kronecker import KroneckerMatrix, kronecker_matrix
from kru.matrices.low_rank_diagonal import LowRankDiagonal
from kru.matrices.restricted_unitary import RestrictedUnitaryMatrix
from kru.matrices.rotations import RotationMatrix
from kru.matrices.unitary_kronecker import UnitaryKroneckerMatrix

__all__ = [
    "AntisymmetricMatrix",
    "ChainMatrix",
    "ExponentialMatrix",
    "FullUnitaryMatrix",
    "HouseholderMatrix",
    "KroneckerMatrix",
    "LowRankDiagonal",
    "RecurrentMatrix",
    "RestrictedUnitaryMatrix",
    "RotationMatrix",
    "StableDiagonal",
    "UnitaryKroneckerMatrix",
    "kronecker_matrix",
]
