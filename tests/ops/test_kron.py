"""kron_matmul against the dense matrix: every dtype, any strides, any leading shape, singular factors."""

import itertools
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kru
from kru.ops.kron.reference import kron_matmul_reference

from .kron_cases import DTYPES, VIEWS, KronCase, assert_dense, dense_matrix, random_kron_case

SHAPES = {
    "one dense": [(9, 9)],
    "one row": [(1, 7)],
    "one column": [(7, 1)],
    "ones": [(1, 1), (1, 1), (1, 1)],
    "rectangular": [(2, 3), (4, 1), (3, 5)],
    "rectangular, square product": [(2, 3), (3, 2)],
    "odd": [(3, 3), (5, 5), (7, 7)],
    "large then small": [(16, 16), (2, 2)],
    "small then large": [(2, 2), (17, 17)],
    "dense of several panels": [(50, 41)],
    **{f"{count} of 2x2": [(2, 2)] * count for count in (1, 2, 3, 4, 5, 7)},
    "2x2 and another": [(2, 2), (2, 2), (3, 3), (2, 2), (2, 2)],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_value_and_gradients(shapes: list[tuple[int, int]], dtype: torch.dtype) -> None:
    for leading in ((), (1,), (13,), (2, 3, 1)):
        assert_dense(KronCase(tuple(shapes), leading, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("leading", [(0,), (0, 3), (3, 0)], ids=str)
def test_empty_batch(leading: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_dense(KronCase(((2, 3), (2, 2)), leading, dtype))
    leaves = KronCase(((2, 3), (2, 2)), leading, dtype).leaves()
    gradients = torch.autograd.grad(kru.kron_matmul(leaves[0], leaves[1:]).abs().sum(), leaves)
    assert not any(gradient.count_nonzero() for gradient in gradients)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_strides(view: str, dtype: torch.dtype) -> None:
    for shapes in (((3, 3), (2, 2)), ((2, 2),) * 5, ((6, 6),)):
        assert_dense(KronCase(shapes, (3, 2), dtype, x_view=view))
        assert_dense(KronCase(shapes, (3, 2), dtype, factor_views=(view,)))
        assert_dense(KronCase(shapes, (3, 2), dtype, x_view=view, factor_views=(view, "plain")))


def test_views_are_what_they_are_called() -> None:
    """Or the tests above would show nothing."""
    case = KronCase(((3, 3), (2, 2)), (4, 5), torch.complex64, "adjoint", ("conjugated", "negated"))
    x, (a, b) = case.tensors(case.leaves())
    assert x.is_conj()
    assert not x.is_contiguous()
    assert a.is_conj()
    assert b.is_neg()
    real = KronCase(((3, 3),), (4,), torch.float32, "imaginary")
    assert real.tensors(real.leaves())[0].is_neg()


@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3)
    | st.integers(1, 5).map(lambda count: [(2, 2)] * count),
    leading=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from(DTYPES),
    x_view=st.sampled_from(VIEWS),
    factor_views=st.lists(st.sampled_from(VIEWS), min_size=1, max_size=3),
    rank=st.none() | st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_any_product(shapes, leading, dtype, x_view, factor_views, rank, seed) -> None:
    assert_dense(KronCase(tuple(shapes), tuple(leading), dtype, x_view, tuple(factor_views), rank, seed))


@pytest.mark.parametrize("seed", range(4))
def test_many_random_products(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        assert_dense(random_kron_case(rng))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("smallest", [0.0, 1e-12, 1e-6, 1e-3, 0.03, 0.1, 1.0])
@pytest.mark.parametrize("sizes", [(2,) * 5, (3, 20), (20, 3), (2, 2, 3, 9), (9, 20, 5), (12, 12)], ids=str)
def test_singular_factors(sizes: tuple[int, ...], smallest: float, dtype: torch.dtype) -> None:
    """Factors of 2x2, and all but the largest of others, take their gradients another way if far from singular."""
    torch.manual_seed(0)
    real = torch.zeros((), dtype=dtype).real.dtype
    factors = []
    for size in sizes:
        left, right = (torch.linalg.qr(torch.randn(size, size, dtype=dtype))[0] for _ in range(2))
        values = torch.ones(size, dtype=real)
        values[-1] = smallest
        factors.append(left @ torch.diag(values).to(dtype) @ right)
    count = len(sizes)
    for singular in itertools.chain([range(count)], [[f] for f in range(count)]):
        chosen = [factors[f] if f in singular else torch.linalg.qr(factors[f])[0] for f in range(count)]
        inputs = [torch.randn(1000, math.prod(sizes), dtype=dtype), *chosen]
        wide = torch.complex128 if dtype.is_complex else torch.float64
        got = gradients_of(lambda x, *fs: kru.kron_matmul(x, fs), inputs)
        expected = gradients_of(lambda x, *fs: x @ dense_matrix(list(fs)).mT, [t.to(wide) for t in inputs])
        tolerance = 1e-4 if real == torch.float32 else 1e-10
        for a, b in zip(got, expected, strict=True):
            assert (a - b).abs().max() <= tolerance * b.abs().max().clamp(min=1)


def gradients_of(function, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    y = function(*leaves)
    torch.manual_seed(1)
    dy = torch.randn(y.shape, dtype=torch.float32)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy.to(y.dtype))]


def test_factor_of_zeros() -> None:
    factors = [torch.zeros(2, 2) if f == 2 else torch.eye(2) for f in range(6)]
    x, *rest = (t.requires_grad_() for t in (torch.randn(3, 64), *factors))
    gradients = torch.autograd.grad(kru.kron_matmul(x, rest).sum(), [x, *rest])
    assert [bool(gradient.count_nonzero()) for gradient in gradients] == [
        False,
        False,
        False,
        True,
        *[False] * 3,
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_very_small_and_very_large_factors(scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    factors = [torch.randn(2, 2, dtype=dtype) for _ in range(5)]
    factors[1] = factors[1] * scale
    got = gradients_of(lambda x, *fs: kru.kron_matmul(x, fs), [torch.ones(2, 32, dtype=dtype), *factors])
    wide = [t.to(torch.complex128) for t in (torch.ones(2, 32), *factors)]
    expected = gradients_of(lambda x, *fs: x @ dense_matrix(list(fs)).mT, wide)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.to(torch.complex128), b, rtol=1e-3, atol=1e-4 * float(b.abs().max()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [10, 12, 13])
def test_rows_longer_than_a_block(count: int, dtype: torch.dtype) -> None:
    """Too long for the dense matrix; the reference, compared with it above, stands in."""
    torch.manual_seed(0)
    factors = [torch.linalg.qr(torch.randn(2, 2, dtype=dtype))[0] for _ in range(count)]
    inputs = [torch.randn(3, 2**count, dtype=dtype), *factors]
    wide = torch.complex128 if dtype.is_complex else torch.float64
    got = gradients_of(lambda x, *fs: kru.kron_matmul(x, fs), inputs)
    expected = gradients_of(lambda x, *fs: kron_matmul_reference(x, fs), [t.to(wide) for t in inputs])
    tolerance = 2e-5 if dtype in (torch.float32, torch.complex64) else 1e-12
    for a, b in zip(got, expected, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", [[(300, 300)], [(64, 128), (5, 3)], [(2, 1), (130, 257)]], ids=str)
def test_large_factors(shapes: list[tuple[int, int]], dtype: torch.dtype) -> None:
    assert_dense(KronCase(tuple(shapes), (33,), dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64], ids=str)
def test_other_dtypes_run_on_the_reference(dtype: torch.dtype) -> None:
    factors = [torch.randint(-3, 3, (2, 2)).to(dtype), torch.randint(-3, 3, (3, 2)).to(dtype)]
    x = torch.randint(-3, 3, (5, 4)).to(dtype)
    expected = x.double() @ dense_matrix([factor.double() for factor in factors]).mT
    torch.testing.assert_close(kru.kron_matmul(x, factors), expected.to(dtype))


def test_nan_and_infinity_stay() -> None:
    x = torch.ones(4, 36)
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    for factors in ([torch.ones(6, 6)] * 2, [torch.ones(4, 4), torch.ones(9, 9)], [torch.ones(36, 36)]):
        y = kru.kron_matmul(x, factors)
        assert y[1].isnan().all()
        assert (y[2] == float("inf")).all()
        assert (y[[0, 3]] == 36).all()
    y = kru.kron_matmul(x[:, :32].contiguous(), [torch.ones(2, 2)] * 5)
    assert y[1].isnan().all()
    assert not y[[0, 3]].isnan().any()


def test_input_is_left_alone() -> None:
    for dtype in DTYPES:
        x, factors = torch.randn(3, 32, dtype=dtype), [torch.randn(2, 2, dtype=dtype) for _ in range(5)]
        before = [t.clone() for t in (x, *factors)]
        kru.kron_matmul(x, factors)
        y = kru.kron_matmul(x.requires_grad_(), [factor.requires_grad_() for factor in factors])
        y.abs().sum().backward()
        assert all(map(torch.equal, [x, *factors], before))


def test_dense_matrix() -> None:
    torch.manual_seed(0)
    factors = [torch.randn(2, 2), torch.randn(3, 2), torch.randn(1, 4)]
    torch.testing.assert_close(kru.kron_dense(factors), dense_matrix(factors))
    a = torch.randn(2, 3, dtype=torch.complex64)
    torch.testing.assert_close(kru.kron_dense([a.mH, a.conj()]), dense_matrix([a.mH, a.conj()]))
    with pytest.raises(ValueError, match="factors: expected at least one matrix, got none"):
        kru.kron_dense([])


def test_the_same_factor_several_times() -> None:
    torch.manual_seed(0)
    x, factor = (
        torch.randn(3, 32, dtype=torch.float64),
        torch.randn(2, 2, dtype=torch.float64, requires_grad=True),
    )
    (got,) = torch.autograd.grad(kru.kron_matmul(x, [factor] * 5).square().sum(), factor)
    (expected,) = torch.autograd.grad((x @ dense_matrix([factor] * 5).mT).square().sum(), factor)
    torch.testing.assert_close(got, expected)
