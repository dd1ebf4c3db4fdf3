import pytest
import torch

from kru.matrices.factor_pairs import (
    balanced,
    merged_gradient,
    merged_square,
    split_gradients,
    split_squares,
    to_matrices,
    to_stored,
)
from kru.ops.kron.reference import kron

both_fields = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])


@both_fields
def test_split_gradients_are_those_of_autograd(dtype: torch.dtype) -> None:
    a = torch.randn(2, 3, dtype=dtype, requires_grad=True)
    b = torch.randn(4, 2, dtype=dtype, requires_grad=True)
    g = torch.randn(8, 6, dtype=dtype)
    gradients = torch.autograd.grad(kron(a, b), [a, b], g)
    torch.testing.assert_close(split_gradients(g, a, b), gradients)


@both_fields
def test_merged_gradient_is_the_smallest_that_gives_both(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b, g = (torch.randn(*shape, dtype=dtype) for shape in ((2, 3), (4, 2), (8, 6)))
    grad_a, grad_b = split_gradients(g, a, b)
    merged = merged_gradient(grad_a, grad_b, a, b)
    torch.testing.assert_close(split_gradients(merged, a, b), (grad_a, grad_b))
    # The rest is orthogonal to it, so every other solution is longer.
    assert abs((merged.conj() * (g - merged)).sum().item()) < 1e-12


@both_fields
def test_merged_square_is_right_on_average_for_independent_entries(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 2, dtype=dtype), torch.randn(2, 4, dtype=dtype)
    row = 0.1 + torch.rand(3, 2, dtype=torch.float64)
    block = 0.1 + torch.rand(2, 4, dtype=torch.float64)
    true = kron(row, block)
    squares = [torch.zeros(3, 2, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)]
    for _ in range(4000):
        gradients = split_gradients(true.sqrt() * torch.randn(6, 8, dtype=dtype), a, b)
        for square, gradient in zip(squares, gradients, strict=True):
            square += gradient.abs().square() / 4000
    # Entries of B weigh those of a block differently, so only the pattern and the mean agree, not each one.
    estimate = merged_square(*squares, a, b)
    assert estimate.mean().item() == pytest.approx(true.mean().item(), rel=0.25)
    assert torch.corrcoef(torch.stack([estimate.flatten(), true.flatten()]))[0, 1] > 0.95


@both_fields
def test_split_squares_are_those_of_independent_entries(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 2, dtype=dtype), torch.randn(2, 4, dtype=dtype)
    true = 0.1 + torch.rand(6, 8, dtype=torch.float64)
    gradients = split_gradients(true.sqrt() * torch.randn(20_000, 6, 8, dtype=dtype), a, b)
    expected = tuple(gradient.abs().square().mean(0) for gradient in gradients)
    torch.testing.assert_close(split_squares(true, a, b), expected, rtol=0.1, atol=0)


@both_fields
def test_balanced_factors_of_a_unitary_matrix_are_unitary(dtype: torch.dtype) -> None:
    a, b = (
        torch.linalg.qr(torch.randn(3, 3, dtype=dtype)).Q,
        torch.linalg.qr(torch.randn(2, 2, dtype=dtype)).Q,
    )
    for left, right in zip(balanced(7 * a, b / 7), (a, b), strict=True):
        torch.testing.assert_close(left, right)
    left, right = balanced(5 * torch.randn(2, 3, dtype=dtype), b)
    assert left.abs().square().sum().item() / 2 == pytest.approx(right.abs().square().sum().item() / 2)


def test_zero_factors_give_finite_moments() -> None:
    a, b = torch.randn(2, 2), torch.zeros(3, 3)
    assert merged_gradient(torch.zeros(2, 2), torch.randn(3, 3), a, b).isfinite().all()
    assert torch.equal(merged_square(torch.zeros(2, 2), torch.zeros(3, 3), a, b), torch.zeros(6, 6))


def test_storage_and_batches() -> None:
    stored = torch.randn(5, 2, 3, 4, dtype=torch.float64)
    assert torch.equal(to_stored(to_matrices(stored, "complex")), stored)
    a, b = torch.randn(4, 2, 3), torch.randn(4, 5, 2)
    assert torch.equal(kron(a, b), torch.stack([torch.kron(*pair) for pair in zip(a, b, strict=True)]))
