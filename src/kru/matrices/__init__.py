"""How a recurrent matrix is parametrised: one kind of module each, with Kronecker factors for the scan."""

from kru.matrices.base import RecurrentMatrix
from kru.matrices.exact import UnitaryKroneckerMatrix
from kru.matrices.kronecker import KroneckerMatrix, kronecker_matrix

__all__ = ["KroneckerMatrix", "RecurrentMatrix", "UnitaryKroneckerMatrix", "kronecker_matrix"]
