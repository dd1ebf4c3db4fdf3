"""The algebra of merging two Kronecker factors into one: the factor, and what an optimiser knows of it.

Everything works on batches of matrices (..., P, Q), real or complex. A gradient of a complex matrix W is
dL/dRe(W) + i dL/dIm(W), so that dL = Re <G, dW> with <G, W> = sum conj(G) W in either field.
"""

import torch
from torch import Tensor

MATRIX = (-2, -1)


def to_matrices(stored: Tensor, field: str) -> Tensor:
    """Parameters (..., P, Q), or (..., 2, P, Q) of the complex field, as matrices (..., P, Q)."""
    return torch.complex(*stored.unbind(-3)) if field == "complex" else stored


def to_stored(matrices: Tensor) -> Tensor:
    """The inverse of `to_matrices`."""
    if matrices.is_complex():
        return torch.stack([matrices.real, matrices.imag], dim=-3)
    return matrices


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


def merged_gradient(grad_a: Tensor, grad_b: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The smallest gradient G of C = A ⊗ B from which those of A and B follow.

    By the chain rule the gradient of A is G contracted with conj(B), that of B is G contracted with conj(A).
    The least-norm solution, G's projection onto the directions in which Kronecker products can move, is::

        G_A ⊗ B / |B|^2 + A ⊗ G_B / |A|^2 - c A ⊗ B / (|A|^2 |B|^2),    c = <A, G_A> = <B, G_B>.

    The two c are equal for gradients at one point; running averages of gradients have nearly equal ones, and
    their mean is taken.
    """
    scaled_a, scaled_b = _over_square(a), _over_square(b)
    inner_a = (grad_a * a.conj()).sum(MATRIX, keepdim=True)
    inner_b = (grad_b * b.conj()).sum(MATRIX, keepdim=True)
    return (
        kron(grad_a, scaled_b) + kron(scaled_a, grad_b) - (inner_a + inner_b) / 2 * kron(scaled_a, scaled_b)
    )


def merged_square(square_a: Tensor, square_b: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """An estimate of the mean square E|G|^2 of the gradient of each entry of C = A ⊗ B, real.

    For entries of G that are independent, E|G_A|^2 is the sum of E|G|^2 |B|^2 over a block, so E|G|^2
    averages to mean E|G_A|^2 / |B|^2 and to mean E|G_B|^2 / |A|^2. The estimate has the geometric mean of
    the two as its mean, and the pattern of the outer product of both.
    """
    mean_a, mean_b = square_a.mean(MATRIX, keepdim=True), square_b.mean(MATRIX, keepdim=True)
    tiny = torch.finfo(mean_a.dtype).tiny
    scale = (mean_a * mean_b / (_square(a) * _square(b)).clamp_min(tiny)).sqrt()
    return scale * kron(square_a / mean_a.clamp_min(tiny), square_b / mean_b.clamp_min(tiny))


def _square(matrices: Tensor) -> Tensor:
    """|A|^2, the squared Frobenius norm, real: (..., 1, 1)."""
    return (matrices * matrices.conj()).real.sum(MATRIX, keepdim=True)


def _over_square(matrices: Tensor) -> Tensor:
    """A / |A|^2, and zero where A is zero."""
    square = _square(matrices)
    return matrices / square.clamp_min(torch.finfo(square.dtype).tiny)
