"""The algebra of merging two Kronecker factors into one and of splitting one into two: the factors, and what an
optimiser knows of them.

Everything works on batches of matrices (..., P, Q), real or complex. A gradient of a complex matrix W is
dL/dRe(W) + i dL/dIm(W), so that dL = Re <G, dW> with <G, W> = sum conj(G) W in either field.
"""

import torch
from torch import Tensor

from kru.linalg.factors import Shapes
from kru.linalg.nearest import nearest_kronecker
from kru.ops.kron.reference import kron

MATRIX = (-2, -1)


def to_matrices(stored: Tensor, field: str) -> Tensor:
    """Parameters (..., P, Q), or (..., 2, P, Q) of the complex field, as matrices (..., P, Q)."""
    return torch.complex(*stored.unbind(-3)) if field == "complex" else stored


def to_stored(matrices: Tensor) -> Tensor:
    """The inverse of `to_matrices`."""
    if matrices.is_complex():
        return torch.stack([matrices.real, matrices.imag], dim=-3)
    return matrices


def merged_gradient(grad_a: Tensor, grad_b: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The smallest gradient G of C = A ⊗ B that gives the gradients of A and B.

    By the chain rule, the gradient of A is G contracted with conj(B), and the gradient of B is G contracted with
    conj(A). The least-norm solution, G's projection onto the directions in which Kronecker products can move, is::

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


def split_gradients(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of A and B from the gradient of C = A ⊗ B, by the chain rule."""
    blocks = _blocks(grad, a, b)
    return (
        torch.einsum("...ikjl,...kl->...ij", blocks, b.conj()),
        torch.einsum("...ikjl,...ij->...kl", blocks, a.conj()),
    )


def split_squares(square: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The mean squares E|G_A|^2 and E|G_B|^2 from E|G|^2, for entries of G that are independent."""
    blocks = _blocks(square, a, b)
    return (
        torch.einsum("...ikjl,...kl->...ij", blocks, b.abs().square()),
        torch.einsum("...ikjl,...ij->...kl", blocks, a.abs().square()),
    )


def nearest_pair(c: Tensor, shapes: Shapes) -> tuple[Tensor, Tensor]:
    """A and B of two shapes whose Kronecker product is nearest to C in the Frobenius norm, for batches of C."""
    found = [nearest_kronecker(matrix, shapes).factors for matrix in c.reshape(-1, *c.shape[-2:])]
    a, b = (
        torch.stack(factors).reshape(*c.shape[:-2], *factors[0].shape) for factors in zip(*found, strict=True)
    )
    return balanced(a, b)


def relative_error(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """||C - A ⊗ B|| / ||C||, the norms of Frobenius: (...)."""
    tiny = torch.finfo(c.real.dtype).tiny
    return (_square(c - kron(a, b)) / _square(c).clamp_min(tiny)).sqrt()[..., 0, 0]


def nearest_unitary(matrices: Tensor) -> Tensor:
    """The nearest unitary matrix U V^H to each U S V^H."""
    u, _, v = torch.linalg.svd(matrices)
    nearest: Tensor = u @ v
    return nearest


def balanced(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The same A ⊗ B with the scale shared so that the singular values of both have the same mean square.

    Only the product of the two scales is given by A ⊗ B; factors of a unitary matrix are unitary only so.
    """
    norms = [_square(m) / min(m.shape[-2:]) for m in (a, b)]
    tiny = torch.finfo(norms[0].dtype).tiny
    scale = (norms[1].clamp_min(tiny) / norms[0].clamp_min(tiny)) ** 0.25
    return a * scale, b / scale


def _blocks(matrices: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(..., P R, Q S) as (..., P, R, Q, S), for A (P, Q) and B (R, S)."""
    return matrices.reshape(*matrices.shape[:-2], a.shape[-2], b.shape[-2], a.shape[-1], b.shape[-1])


def _square(matrices: Tensor) -> Tensor:
    """|A|^2, the squared Frobenius norm, real: (..., 1, 1)."""
    return (matrices * matrices.conj()).real.sum(MATRIX, keepdim=True)


def _over_square(matrices: Tensor) -> Tensor:
    """A / |A|^2, and zero where A is zero."""
    square = _square(matrices)
    return matrices / square.clamp_min(torch.finfo(square.dtype).tiny)
