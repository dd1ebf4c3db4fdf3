"""Cases of the Kronecker product with tensors of any strides, compared with the dense matrix."""

import random
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from kru.ops import kron_matmul

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11, torch.complex64: 2e-5, torch.complex128: 1e-11}
VIEWS = (
    "plain",
    "transposed",
    "adjoint",
    "sliced",
    "expanded",
    "offset",
    "conjugated",
    "negated",
    "imaginary",
)


@dataclass(frozen=True)
class KronCase:
    shapes: tuple[tuple[int, int], ...]
    leading: tuple[int, ...] = (3,)
    dtype: torch.dtype = torch.float32
    x_view: str = "plain"
    factor_views: tuple[str, ...] = ("plain",)
    """Taken in turn by the factors."""
    rank: int | None = None
    """The number of terms; None for a single product without a dimension for them."""
    seed: int = 0

    def parts(self) -> list[tuple[str, tuple[int, ...]]]:
        """View and shape of x and of each factor."""
        columns = prod(q for _, q in self.shapes)
        views = [self.factor_views[f % len(self.factor_views)] for f in range(len(self.shapes))]
        terms = () if self.rank is None else (self.rank,)
        sizes = [(*self.leading, columns), *((*terms, *shape) for shape in self.shapes)]
        return list(zip([self.x_view, *views], sizes, strict=True))

    def leaves(self) -> list[Tensor]:
        torch.manual_seed(self.seed)
        return [memory_of(view, shape, self.dtype).requires_grad_() for view, shape in self.parts()]

    def tensors(self, leaves: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        x, *factors = (
            view_of(view, leaf, shape, self.dtype)
            for (view, shape), leaf in zip(self.parts(), leaves, strict=True)
        )
        return x, factors


def memory_of(view: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What `view_of` sees a tensor of this shape and dtype in."""
    first, last = shape[0], shape[-1]
    if view in ("transposed", "adjoint") and len(shape) > 1:
        shape = (*shape[:-2], last, shape[-2])
    elif view == "sliced":
        shape = (*shape[:-1], 2 * last)
    elif view == "expanded":
        shape = (1, *shape[1:])
    elif view == "offset":
        shape = (first + 1, *shape[1:])
    elif view == "imaginary":
        dtype = COMPLEX.get(dtype, dtype)
    return torch.randn(shape, dtype=dtype) / last**0.5


def view_of(view: str, memory: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if view in ("transposed", "adjoint") and len(shape) > 1:
        return memory.mT if view == "transposed" else memory.mH
    if view == "sliced":
        return memory[..., ::2]
    if view == "expanded":
        return memory.expand(shape)
    if view == "offset":
        return memory[1:]
    if view == "conjugated":
        return memory.conj()
    if view == "negated":
        return torch._neg_view(memory)
    if view == "imaginary" and not dtype.is_complex:
        return memory.conj().imag  # a real view of complex numbers that carries the negative bit
    return memory


def dense_matrix(factors: list[Tensor]) -> Tensor:
    """By its definition: entry (p_0 p_1 .., q_0 q_1 ..) is the product of the factors' entries (p_f, q_f), summed over
    the terms if there are several."""
    if factors[0].dim() == 3:
        return sum(dense_matrix([factor[r] for factor in factors]) for r in range(len(factors[0])))
    matrix = factors[0].new_ones(1, 1)
    for factor in factors:
        (m, n), (p, q) = matrix.shape, factor.shape
        matrix = torch.einsum("ij,pq->ipjq", matrix, factor).reshape(m * p, n * q)
    return matrix


def dense_product(x: Tensor, factors: list[Tensor]) -> Tensor:
    """In double precision."""
    wide = torch.complex128 if x.dtype.is_complex else torch.float64
    return x.to(wide) @ dense_matrix([factor.to(wide) for factor in factors]).mT


def assert_dense(case: KronCase, tolerance: float | None = None) -> None:
    """Value and gradients against the dense matrix.

    What rounding may do is proportional to the sum of the absolute values of all terms, so the yardstick is
    the same with absolute values everywhere.
    """
    tolerance = TOLERANCE[case.dtype] if tolerance is None else tolerance
    leaves = case.leaves()
    x, factors = case.tensors(leaves)
    y = kron_matmul(x, factors)
    expected = dense_product(x, factors)
    assert y.shape == expected.shape, case
    assert y.dtype == case.dtype, case
    dy = torch.randn(y.shape, dtype=case.dtype)
    got = [y, *torch.autograd.grad(y, leaves, dy)]
    wanted = [expected, *torch.autograd.grad(expected, leaves, dy.to(expected.dtype))]
    sizes = absolute(case, leaves, dy)
    with torch.no_grad():
        got.append(kron_matmul(x, factors))  # another way through the code
        wanted.append(expected)
        sizes.append(sizes[0])
        for a, b, size in zip(got, wanted, sizes, strict=True):
            error = float((a - b).abs().max()) if a.numel() else 0.0
            assert error <= tolerance * size, f"{case}: off by {error:.2e}, the terms are {size:.2e}"


def absolute(case: KronCase, leaves: list[Tensor], dy: Tensor) -> list[float]:
    x, factors = case.tensors([leaf.detach() for leaf in leaves])
    inputs = [t.abs().requires_grad_() for t in (x, *factors)]
    y = dense_product(inputs[0], inputs[1:])
    gradients = torch.autograd.grad(y, inputs, dy.abs().to(y.dtype))
    sizes = [float(t.detach().abs().max()) if t.numel() else 0.0 for t in (y, *gradients)]
    # An expanded leaf collects the gradients of all its copies.
    copies = max(1, case.rank or 1, case.leading[0] if case.leading else 1, *map(max, case.shapes))
    return [size * copies for size in sizes]


def random_kron_case(rng: random.Random) -> KronCase:
    if rng.random() < 0.3:
        shapes = [(2, 2)] * rng.randint(1, 5)
    else:
        shapes = []
        while not shapes or (rng.random() < 0.6 and prod(max(s) for s in shapes) < 10):
            shapes.append((rng.randint(1, 6), rng.randint(1, 6)))
    leading = tuple(rng.choice([0, 1, 1, 2, 3, 5]) for _ in range(rng.randint(0, 3)))
    return KronCase(
        shapes=tuple(shapes),
        leading=leading,
        dtype=rng.choice(DTYPES),
        x_view=rng.choice(VIEWS),
        factor_views=tuple(rng.choice(VIEWS) for _ in range(rng.randint(1, 3))),
        rank=rng.choice([None, None, 1, 2, 3]),
        seed=rng.randrange(10**6),
    )
