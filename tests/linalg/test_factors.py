import warnings
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kru
from kru.linalg.factors import parse_factors, prime_factors, rectangular_shapes, splits, square_shapes


@given(st.integers(1, 5000))
def test_prime_factors_multiply_to_the_size(size: int) -> None:
    primes = prime_factors(size)
    assert prod(primes) == size
    assert list(primes) == sorted(primes)
    assert all(p == 1 or all(p % d for d in range(2, p)) for p in primes)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (128, (2,) * 7),
        (411, (3, 137)),
        (993, (3, 331)),
        (100, (2, 2, 5, 5)),
        (45, (3, 3, 5)),
        (1, (1,)),
        (7, (7,)),
    ],
)
def test_without_limits_the_prime_factors(size: int, expected: tuple[int, ...]) -> None:
    assert kru.choose_factors(size) == expected


@given(st.integers(2, 400), st.integers(1, 40_000), st.integers(1, 200))
def test_with_limits_the_most_entries_among_all_splits(size: int, parameters: int, factor: int) -> None:
    allowed = [
        split for split in splits(size) if sum(n * n for n in split) <= parameters and max(split) <= factor
    ]
    if not allowed:
        with pytest.raises(ValueError, match=f"size: {size} .* can be split"):
            kru.choose_factors(size, parameters, factor)
        return
    chosen = kru.choose_factors(size, parameters, factor)
    assert prod(chosen) == size
    assert sum(n * n for n in chosen) == max(sum(n * n for n in split) for split in allowed)


def test_the_split_of_the_paper() -> None:
    assert sorted(kru.choose_factors(2048, max_parameters=17_000)) == [16, 128]
    assert kru.choose_factors(500, max_parameters=63_000) == (2, 250)


def test_a_size_that_cannot_be_split_explains_itself() -> None:
    with pytest.raises(ValueError) as error:
        kru.choose_factors(251, max_factor=32)
    assert str(error.value) == (
        "size: 251 is prime, so its only factor is 251, above max_factor=32; "
        "252 = 2 * 2 * 3 * 3 * 7 can be split"
    )
    with pytest.raises(ValueError, match=r"502 = 2 \* 251, whose factor 251 is above max_factor=32; 50\d = "):
        kru.choose_factors(502, max_factor=32)
    with pytest.raises(ValueError, match="at least 63005 entries, above max_parameters=1000"):
        kru.choose_factors(502, max_parameters=1000)


def test_a_large_prime_size_warns_that_it_is_dense() -> None:
    with pytest.warns(UserWarning, match=r"257 is prime.*66049 entries; 258 = 2 \* 3 \* 43 can be split"):
        assert kru.choose_factors(257) == (257,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kru.choose_factors(13) == (13,)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((0,), ValueError, "size: expected a positive integer, got 0"),
        ((2.0,), TypeError, "size: expected an integer, got float"),
        ((8, True), TypeError, "max_parameters: expected an integer, got bool"),
        ((8, None, -1), ValueError, "max_factor: expected a positive integer, got -1"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        kru.choose_factors(*arguments)


@pytest.mark.parametrize(
    ("factors", "kind", "message"),
    [
        (12, TypeError, "factors: expected a list of sizes or of pairs .*, got int"),
        ("2,6", TypeError, "factors: expected a list .*, got str"),
        ([], ValueError, "factors: expected at least one factor, got none"),
        ([2, 5], ValueError, r"factors: expected rows whose product is hidden_size=12, got 2 \* 5 = 10"),
        ([(2, 3), (6, 3)], ValueError, "factors: expected columns whose product is hidden_size=12"),
        ([2, "6"], TypeError, r"factors\[1\]: expected a size or a pair \(rows, columns\), got '6'"),
        ([2, (2, 3, 4)], TypeError, r"factors\[1\]: expected a size or a pair"),
        ([True, 12], TypeError, r"factors\[0\]: expected a size"),
        ([-2, -6], ValueError, r"factors\[0\]: expected positive sizes, got -2"),
    ],
)
def test_bad_factors(factors: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        square_shapes(factors, 12)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_rectangular_shapes_fit(rows: int, columns: int) -> None:
    shapes = rectangular_shapes(rows, columns)
    assert parse_factors(shapes, rows, columns, "rows", "columns") == shapes
