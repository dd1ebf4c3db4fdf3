"""Unitary matrices: random and simple ones to start from, the distance of a matrix from them, and a map onto
them.

Matrices of the complex field are real tensors (..., 2, P, Q), real part first; those of the real field (...,
P, Q).
"""

import torch
from torch import Tensor

INITIALISATIONS = ("haar", "identity", "diagonal")


def initial_factor(
    rows: int, columns: int, *, field: str = "complex", method: str = "haar", count: int = 1
) -> Tensor:
    """`count` starting matrices in double precision on the CPU: (count, P, Q) or, complex, (count, 2, P, Q).

    Args:
        method: "haar": uniformly distributed over the unitary (real: orthogonal) matrices; with more rows
            than columns over those with orthonormal columns, with fewer over those with orthonormal rows.
            "identity": ones on the diagonal. "diagonal": random phases exp(i theta) on the diagonal, in the
            real field random signs.

    >>> import torch
    >>> w = torch.complex(*initial_factor(3, 3)[0])
    >>> torch.allclose(w.mH @ w, torch.eye(3, dtype=w.dtype))
    True
    """
    if method not in INITIALISATIONS:
        raise ValueError(f"recurrent_init: expected one of {', '.join(INITIALISATIONS)}, got {method!r}")
    dtype = torch.complex128 if field == "complex" else torch.float64
    if method == "haar":
        matrix = _haar(rows, columns, count, dtype)
    else:
        matrix = torch.eye(rows, columns, dtype=dtype, device="cpu").repeat(count, 1, 1)
        if method == "diagonal":
            matrix = matrix * _phases(rows, count, dtype)
    return torch.stack([matrix.real, matrix.imag], dim=1) if field == "complex" else matrix


def _haar(rows: int, columns: int, count: int, dtype: torch.dtype) -> Tensor:
    tall, narrow = max(rows, columns), min(rows, columns)
    gaussian = torch.randn(count, tall, narrow, dtype=dtype, device="cpu")
    q: Tensor
    q, r = torch.linalg.qr(gaussian)
    # QR leaves each column's phase to the algorithm; giving R a positive diagonal makes Q uniformly
    # distributed.
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    q = q * torch.where(diagonal == 0, torch.ones_like(diagonal), torch.sgn(diagonal)).unsqueeze(-2)
    return q if rows >= columns else q.transpose(-2, -1)


def _phases(rows: int, count: int, dtype: torch.dtype) -> Tensor:
    """(count, rows, 1) random numbers of modulus one."""
    if dtype.is_complex:
        angle = 2 * torch.pi * torch.rand(count, rows, 1, dtype=torch.float64, device="cpu")
        return torch.polar(torch.ones_like(angle), angle)
    return 1 - 2 * torch.randint(0, 2, (count, rows, 1), device="cpu").to(dtype)


def gram_defect(matrix: Tensor, *, field: str) -> Tensor:
    """||W^H W - I||^2, the squared Frobenius norm, for each of a batch of matrices: (...).

    >>> import torch
    >>> gram_defect(2 * torch.eye(3), field="real")
    tensor(27.)
    """
    if field == "complex":
        re, im = matrix.unbind(-3)
        # For W = A + iB the Gram matrix is (A'A + B'B) + i(A'B - B'A); the second part is antisymmetric.
        gram = re.mT @ re + im.mT @ im
        cross = re.mT @ im
        rest = (cross - cross.mT).square().sum((-2, -1))
    else:
        gram = matrix.mT @ matrix
        rest = gram.new_zeros(())
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return (gram - eye).square().sum((-2, -1)) + rest
