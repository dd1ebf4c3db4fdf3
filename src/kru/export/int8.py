"""Matrices in eight bits: integers from -127 to 127 with one scale for each row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kru.export.network import Array

SMALLEST = 1024
"""Matrices with fewer entries stay in float: a Kronecker factor would save a few bytes, and its errors add up
over time."""


class Int8(NamedTuple):
    """The matrix scale[i] * values[i, j]."""

    values: NDArray[np.int8]
    scale: Array


def to_int8(matrix: Array) -> Int8:
    """The nearest integers where the largest entry of each row has 127.

    >>> values, scale = to_int8(np.array([[1.0, -0.5], [0.0, 0.0]], dtype=np.float32))
    >>> values.tolist(), scale.tolist()
    ([[127, -64], [0, 0]], [0.007874015718698502, 1.0])
    """
    largest = np.abs(matrix).max(axis=1)
    scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    # A scale below the smallest normal number could not be divided by.
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    values = np.clip(np.rint(matrix / scale[:, None]), -127, 127).astype(np.int8)
    return Int8(values, scale)


def gains(matrix: Array) -> bool:
    """Whether int8 makes a matrix worth the trouble: large, and at most half of its bytes with the scales."""
    rows, columns = matrix.shape
    return bool(rows * columns >= SMALLEST and columns >= 4)
