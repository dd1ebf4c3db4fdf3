"""How a recurrent matrix is parametrised: one kind of module each, with Kronecker factors for the scan."""

from kru.matrices.antisymmetric import AntisymmetricMatrix
from kru.matrices.base import RecurrentMatrix
from kru.matrices.exact import UnitaryKroneckerMatrix
from kru.matrices.exponential import ExponentialMatrix
from kru.matrices.full import FullUnitaryMatrix
from kru.matrices.householder import HouseholderMatrix
from kru.matrices.kronecker import KroneckerMatrix, kronecker_matrix
from kru.matrices.restricted import RestrictedUnitaryMatrix
from kru.matrices.rotations import RotationMatrix
from kru.matrices.structured import StructuredMatrix

__all__ = [
    "AntisymmetricMatrix",
    "ExponentialMatrix",
    "FullUnitaryMatrix",
    "HouseholderMatrix",
    "KroneckerMatrix",
    "RecurrentMatrix",
    "RestrictedUnitaryMatrix",
    "RotationMatrix",
    "StructuredMatrix",
    "UnitaryKroneckerMatrix",
    "kronecker_matrix",
]
