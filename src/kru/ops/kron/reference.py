"""The Kronecker product in plain PyTorch: any device, any dtype, differentiable any number of times."""

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import torch
from torch import Tensor


def kron_dense(factors: Sequence[Tensor]) -> Tensor:
    """The matrix W = W_0 ⊗ ... ⊗ W_{F-1} itself, of shape (prod P_f, prod Q_f).

    With factors (R, P_f, Q_f) the sum of R such products. For tests and small cases: its size is the product of the
    sizes of its factors.

    >>> import torch, kru
    >>> kru.kron_dense([torch.eye(2), torch.ones(1, 3)])
    tensor([[1., 1., 1., 0., 0., 0.],
            [0., 0., 0., 1., 1., 1.]])
    """
    if len(factors) == 0:
        raise ValueError("factors: expected at least one matrix, got none")
    # One term after the other: all at once would take the memory of R matrices.
    return reduce(torch.add, (reduce(kron, term) for term in terms_of(factors)))


def kron(a: Tensor, b: Tensor) -> Tensor:
    """A ⊗ B for batches of matrices: (..., P, Q) and (..., R, S) give (..., P R, Q S).

    >>> import torch
    >>> a, b = torch.randn(3, 2, 2), torch.randn(3, 4, 5)
    >>> torch.equal(kron(a, b)[1], torch.kron(a[1], b[1]))
    True
    """
    product = a[..., :, None, :, None] * b[..., None, :, None, :]
    rows, columns = a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]
    return product.reshape(*product.shape[:-4], rows, columns)


def terms_of(factors: Sequence[Tensor], dims: int = 2) -> Iterator[Sequence[Tensor]]:
    """The factors of each term of a sum of Kronecker products, one after the other.

    How a sum is stored: factor f of all R terms is one tensor (R, ..., P_f, Q_f), the same R in each. `dims` is the
    number of dimensions of a factor without that leading one; factors with so many are those of a single product.
    """
    if factors[0].dim() == dims:
        yield factors
    else:
        yield from zip(*(factor.unbind(0) for factor in factors), strict=True)


def kron_matmul_reference(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (..., K) times the transpose of W_0 ⊗ ... ⊗ W_{F-1}, one factor after the other, or of a sum of such products.

    With the last dimension of x seen as (L, Q_f, R), L = Q_0 ... Q_{f-1} and R = P_{f+1} ... P_{F-1}, factor f
    computes y[l, p, r] = sum_q W_f[p, q] x[l, q, r].
    """
    products = [_single_product(x, term) for term in terms_of(factors)]
    return products[0] if len(products) == 1 else torch.stack(products).sum(0)


def _single_product(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
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
