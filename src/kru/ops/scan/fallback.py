"""The recurrence where there is no native kernel: other devices, no compiler, higher derivatives, function transforms.

PyTorch takes longer to start an operation than to multiply by a small factor. So neighbouring factors are multiplied
out once, before the first step, into one or two matrices, and a step takes as many matrix products, for all planes,
gates and terms of a sum at once. Everything else is as in the reference.
"""

from functools import reduce

import torch
from torch import Tensor

from kru.ops.kron.merged import grouping
from kru.ops.kron.reference import kron
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.reference import Product, recurrent_product, run_steps


def scan_fallback(arguments: ScanArguments) -> tuple[Tensor, Tensor, Tensor | None]:
    """What `scan_reference` computes, up to rounding, in fewer and larger operations."""
    return run_steps(arguments, merged_product(arguments))


def merged_product(arguments: ScanArguments) -> Product:
    """The product with the recurrent matrices, from merged factors."""
    factors = arguments.factors
    shapes = [(factor.shape[-2], factor.shape[-1]) for factor in factors]
    # (R, G, C, P, Q): terms, gates, planes.
    leading = (arguments.rank, arguments.gates, arguments.planes)
    uniform = [factor.reshape(*leading, *shape) for factor, shape in zip(factors, shapes, strict=True)]
    merged = [reduce(_kron, uniform[first:end]) for first, end in grouping(shapes)]
    if len(merged) == 1:
        return _one_matrix(merged[0])
    if len(merged) == 2:
        return _two_matrices(*merged)
    before = factors[0].shape[:-2]
    return recurrent_product(arguments, [factor.reshape(*before, *factor.shape[-2:]) for factor in merged])


def _kron(a: Tensor, b: Tensor) -> Tensor:
    """A ⊗ B of factors (R, G, C, P, Q), C = 2 for complex numbers."""
    if a.shape[2] == 1:
        return kron(a, b)
    (a_re, a_im), (b_re, b_im) = a.unbind(2), b.unbind(2)
    return torch.stack([kron(a_re, b_re) - kron(a_im, b_im), kron(a_re, b_im) + kron(a_im, b_re)], dim=2)


def _times_i(a: Tensor) -> Tensor:
    """i A of a complex factor (R, G, 2, P, Q)."""
    re, im = a.unbind(2)
    return torch.stack([-im, re], dim=2)


def _one_matrix(w: Tensor) -> Product:
    """W as a real matrix: plane c of h meets i^c W."""
    gates, planes, units = w.shape[1:4]
    if len(w) > 1:
        w = w.sum(0, keepdim=True)
    turned = w[None] if planes == 1 else torch.stack([w, _times_i(w)])  # (c, 1, G, C, P, Q)
    matrix = turned.permute(0, 5, 1, 2, 3, 4).reshape(planes * units, gates * planes * units)
    return lambda h: (h @ matrix).chunk(gates, dim=-1)


def _two_matrices(a: Tensor, b: Tensor) -> Product:
    """A ⊗ B without moving a number: B acts from the right, A from the left.

    With h[c, k, l], c its plane, the first product gives u[c, k, r, d, j] = sum_l B_r^d[j, l] h[c, k, l] for each
    plane d and term r of B. The second is the sum over c, k, r and d, so that it adds up planes and terms as well:
    numbers of the planes c and d count i^(c + d) times, so y[:, i, j] = sum i^(c + d) A_r[i, k] u[c, k, r, d, j].
    """
    terms, gates, planes, rows, columns = a.shape
    inner = b.shape[-1]
    right = b.permute(4, 1, 0, 2, 3).reshape(inner, -1)  # (l, (g, r, d, j))
    turned = a[None, None]
    if planes == 2:
        a_i = _times_i(a)
        turned = torch.stack([torch.stack([a, a_i]), torch.stack([a_i, -a])])
    # From (c, d, r, g, plane, i, k).
    left = turned.permute(3, 4, 5, 0, 6, 2, 1).reshape(gates, planes * rows, -1).unbind(0)
    state = planes * rows * b.shape[-2]
    split = (planes * columns, gates, terms * planes, b.shape[-2])

    def product(h: Tensor) -> list[Tensor]:
        u = (h.reshape(-1, inner) @ right).reshape(-1, *split).unbind(2)
        return [
            torch.matmul(matrix, part.flatten(1, 2)).reshape(-1, state)
            for matrix, part in zip(left, u, strict=True)
        ]

    return product
