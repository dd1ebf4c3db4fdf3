"""The Kronecker product in plain PyTorch: any device, any dtype, differentiable any number of times."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def kron_dense(factors: Sequence[Tensor]) -> Tensor:
    """The matrix W = W_0 ⊗ ... ⊗ W_{F-1} itself, of shape (prod P_f, prod Q_f).

    For tests and small cases: its size is the product of the sizes of its factors.

    >>> import torch, kru
    >>> kru.kron_dense([torch.eye(2), torch.ones(1, 3)])
    tensor([[1., 1., 1., 0., 0., 0.],
            [0., 0., 0., 1., 1., 1.]])
    """
    if len(factors) == 0:
        raise ValueError("factors: expected at least one matrix, got none")
    dense = factors[0]
    for factor in factors[1:]:
        dense = torch.kron(dense.resolve_conj().contiguous(), factor.resolve_conj().contiguous())
    return dense


def kron_matmul_reference(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (..., K) times the transpose of W_0 ⊗ ... ⊗ W_{F-1}, one factor after the other.

    With the last dimension of x seen as (L, Q_f, R), L = Q_0 ... Q_{f-1} and R = P_{f+1} ... P_{F-1}, factor f
    computes y[l, p, r] = sum_q W_f[p, q] x[l, q, r].
    """
    shape = x.shape[:-1]
    rows = math.prod(shape)  # shape.numel() would fix a size that torch.export leaves open
    for f in reversed(range(len(factors))):
        q = factors[f].shape[1]
        right = 1
        for factor in factors[f + 1 :]:
            right *= factor.shape[0]
        left = x.numel() // (rows * q * right) if x.numel() else 0
        x = torch.matmul(factors[f], x.reshape(rows * left, q, right))
    size = 1
    for factor in factors:
        size *= factor.shape[0]
    return x.reshape(*shape, size)
