"""Matrices from the free entries of their lower triangle."""

import torch
from torch import Tensor


def lower_triangle(entries: Tensor, rows: int, columns: int, diagonal: int = 0) -> Tensor:
    """(..., rows, columns) with the entries row by row on and below a diagonal, zeros above.

    >>> lower_triangle(torch.tensor([1, 2, 3, 4, 5]), 3, 2)
    tensor([[1, 0],
            [2, 3],
            [4, 5]])
    """
    i, j = torch.tril_indices(rows, columns, diagonal, device=entries.device)
    flat = entries.new_zeros(*entries.shape[:-1], rows * columns)
    return flat.index_copy(-1, i * columns + j, entries).reshape(*entries.shape[:-1], rows, columns)


def skew_symmetric(entries: Tensor, size: int) -> Tensor:
    """A = L - L^T (..., n, n) from the n(n - 1)/2 entries of L below the diagonal.

    >>> skew_symmetric(torch.tensor([1, 2, 3]), 3)
    tensor([[ 0, -1, -2],
            [ 1,  0, -3],
            [ 2,  3,  0]])
    """
    lower = lower_triangle(entries, size, size, -1)
    return lower - lower.mT
