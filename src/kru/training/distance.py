"""How far recurrent matrices are from unitary ones."""

import math

import torch
from torch import nn

from kru.matrices import RecurrentMatrix
from kru.nn.recurrent import Recurrent
from kru.nn.spectrum import spectrum


def distance_from_unitary(model: nn.Module) -> float | None:
    """max |sigma - 1| over the recurrent matrices that are meant to be unitary; None if none is.

    Nor for a sum of several products of more than 256 units, whose dense matrix would take longer than a validation.
    """
    matrices = [
        layer.matrix(k, reverse=reverse)
        for layer in model.modules()
        if isinstance(layer, Recurrent)
        for k in range(layer.num_layers)
        for reverse in ((False, True) if layer.bidirectional else (False,))
    ]
    distances = [_distance(matrix) for matrix in matrices if _is_measured(matrix)]
    return max(distances, default=None)


def _is_measured(matrix: RecurrentMatrix) -> bool:
    if matrix.constraint == "none" or not matrix.is_square:
        return False
    return matrix.rank == 1 or math.prod(rows for rows, _ in matrix.shapes) <= 256


@torch.no_grad()
def _distance(matrix: RecurrentMatrix) -> float:
    gates = (matrix.dense_factors(gate) for gate in range(matrix.gates))
    return max(spectrum(factors, dense=True).distance_from_unitary for factors in gates)
