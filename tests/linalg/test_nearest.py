"""The nearest sums of Kronecker products against the optimum of the dense singular value decomposition."""

from math import prod

import pytest
import torch
from torch import Tensor

import kru
from kru.linalg.nearest import largest_rank, two_factor_errors

DTYPES = [torch.float64, torch.complex128]
PAIRS = [[4, 6], [6, 4], [(2, 3), (12, 5)], [(24, 1), (1, 15)]]


def random_matrix(factors: list[int | tuple[int, int]], dtype: torch.dtype, seed: int = 0) -> Tensor:
    shapes = [(f, f) if isinstance(f, int) else f for f in factors]
    generator = torch.Generator().manual_seed(seed)
    size = prod(p for p, _ in shapes), prod(q for _, q in shapes)
    return torch.randn(size, dtype=dtype, generator=generator)


def dense_error(matrix: Tensor, factors: list[Tensor]) -> float:
    return ((matrix - kru.kron_dense(factors)).norm() / matrix.norm()).item()


def blocks_as_rows(matrix: Tensor, p: int, q: int) -> Tensor:
    """Van Loan and Pitsianis' rearrangement, block by block: one row for each of the p x q blocks."""
    rows, columns = matrix.shape[0] // p, matrix.shape[1] // q
    return torch.stack(
        [
            matrix[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].flatten()
            for i in range(p)
            for j in range(q)
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("factors", PAIRS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_two_factors_reach_the_optimum(
    factors: list[int | tuple[int, int]], rank: int, dtype: torch.dtype
) -> None:
    matrix = random_matrix(factors, dtype)
    found = kru.nearest_kronecker(matrix, factors, rank)
    p, q = (factors[0], factors[0]) if isinstance(factors[0], int) else factors[0]
    values = torch.linalg.svdvals(blocks_as_rows(matrix, p, q)).square()
    optimum = (values[rank:].sum() / values.sum()).sqrt().item()
    assert found.error == pytest.approx(optimum, rel=1e-10)
    assert dense_error(matrix, found.factors) == pytest.approx(optimum, rel=1e-10)
    assert found.factors[0].shape == ((rank, p, q) if rank > 1 else (p, q))
    assert found.factors[0].dtype == dtype


def test_low_rank_is_a_special_case() -> None:
    matrix = torch.randn(9, 7, dtype=torch.float64)
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    found = kru.nearest_kronecker(matrix, [(9, 1), (1, 7)], rank=3)
    torch.testing.assert_close(kru.kron_dense(found.factors), u[:, :3] * s[:3] @ vh[:3])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [[(2, 2), (3, 3), (4, 4)], [(2, 3), (3, 2), (2, 2), (2, 3)]], ids=str)
@pytest.mark.parametrize("rank", [1, 3])
def test_a_sum_is_found_again(sizes: list[tuple[int, int]], rank: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    factors = [torch.randn(rank, *size, dtype=dtype, generator=generator) for size in sizes]
    found = kru.nearest_kronecker(kru.kron_dense(factors), sizes, rank)
    assert found.error < 1e-5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_factors_get_no_worse(dtype: torch.dtype) -> None:
    """With more terms, with larger factors, and against simpler approximations of the same form."""
    matrix = random_matrix([24], dtype)
    errors = [kru.nearest_kronecker(matrix, [2, 3, 4], rank).error for rank in range(1, 7)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]
    for rank in (1, 3):
        larger = kru.nearest_kronecker(matrix, [2, 12], rank).error
        assert larger <= errors[rank - 1] + 1e-12
    # the nearest pair of factors, the larger of which is then replaced by its own nearest product
    a, b = kru.nearest_kronecker(matrix, [2, 12]).factors
    in_turn = kru.kron_dense([a, *kru.nearest_kronecker(b, [3, 4]).factors])
    assert errors[0] <= ((matrix - in_turn).norm() / matrix.norm()).item() + 1e-12


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("factors", [[4, 6], [2, 3, 4], [24]], ids=str)
def test_errors_on_the_inputs_that_occur(factors: list[int], dtype: torch.dtype) -> None:
    matrix = random_matrix(factors, dtype)
    generator = torch.Generator().manual_seed(1)
    decay = 0.8 ** torch.arange(24, dtype=torch.float64)
    inputs = decay.to(dtype).unsqueeze(1) * torch.randn(24, 200, dtype=dtype, generator=generator)
    rank = 1 if len(factors) == 1 else 2

    def error(found: list[Tensor]) -> float:
        return (((matrix - kru.kron_dense(found)) @ inputs).norm() / (matrix @ inputs).norm()).item()

    plain = kru.nearest_kronecker(matrix, factors, rank)
    fitted = kru.nearest_kronecker(matrix, factors, rank, moments=inputs @ inputs.mH)
    assert fitted.error == pytest.approx(error(fitted.factors), abs=1e-9)
    assert fitted.error <= error(plain.factors) + 1e-12
    if len(factors) > 1:
        assert fitted.error < 0.8 * error(plain.factors)
    same = kru.nearest_kronecker(matrix, factors, rank, moments=torch.eye(24, dtype=dtype))
    assert same.error <= plain.error + 1e-12


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_low_rank_on_the_inputs_that_occur_reaches_the_optimum(dtype: torch.dtype) -> None:
    matrix = random_matrix([(9, 1), (1, 12)], dtype)
    inputs = random_matrix([(12, 1), (1, 40)], dtype, seed=1) * torch.arange(12).unsqueeze(1)
    found = kru.nearest_kronecker(matrix, [(9, 1), (1, 12)], rank=4, moments=inputs @ inputs.mH)
    values = torch.linalg.svdvals(matrix @ inputs).square()
    assert found.error == pytest.approx((values[4:].sum() / values.sum()).sqrt().item(), rel=1e-6)


def test_scales_and_order() -> None:
    found = kru.nearest_kronecker(torch.randn(24, 24, dtype=torch.float64), [2, 3, 4], rank=4)
    norms = torch.stack([factor.flatten(1).norm(dim=1) for factor in found.factors])
    torch.testing.assert_close(norms, norms[:1].expand(3, 4))
    assert norms[0].tolist() == sorted(norms[0].tolist(), reverse=True)


def test_all_ranks_of_two_factors_at_once() -> None:
    matrix = torch.randn(12, 12)
    errors = two_factor_errors(matrix, ((3, 3), (4, 4)))
    assert len(errors) == largest_rank(((3, 3), (4, 4))) == 9
    for rank in (1, 4, 9):
        found = kru.nearest_kronecker(matrix, [3, 4], rank)
        assert errors[rank - 1].item() == pytest.approx(found.error, abs=1e-6)
    assert errors[-1] < 1e-6


def test_zeros_and_lower_precision() -> None:
    found = kru.nearest_kronecker(torch.zeros(6, 6), [2, 3], rank=2)
    assert found.error == 0
    assert all(bool((factor == 0).all()) for factor in found.factors)
    half = torch.randn(6, 6).to(torch.bfloat16)
    assert kru.nearest_kronecker(half, [2, 3]).factors[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("matrix", "factors", "options", "error", "message"),
    [
        ([[1.0]], [1], {}, TypeError, "matrix: expected a tensor, got list"),
        (torch.ones(4), [4], {}, ValueError, r"matrix: expected shape \(N, K\), got \(4,\)"),
        (
            torch.ones(4, 4),
            [2, 3],
            {},
            ValueError,
            "factors: expected rows whose product is N=4, got 2 \\* 3",
        ),
        (torch.ones(4, 4), [2, 2], {"rank": 0}, ValueError, "rank: expected at least one"),
        (torch.ones(4, 4), [2, 2], {"rank": 5}, ValueError, "rank: expected at most 4, .* got 5"),
        (torch.full((4, 4), torch.nan), [2, 2], {}, ValueError, "matrix: expected finite entries"),
        (
            torch.ones(4, 4),
            [2, 2],
            {"moments": torch.ones(3, 3)},
            ValueError,
            r"moments: expected shape \(4, 4\)",
        ),
        (torch.ones(4, 4), [2, 2], {"moments": -torch.eye(4)}, ValueError, "moments: expected a positive"),
    ],
)
def test_bad_arguments(matrix, factors, options, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kru.nearest_kronecker(matrix, factors, **options)
