"""Shapes of Kronecker factors: how a size is split, and how a `factors` argument is read."""

import warnings
from collections.abc import Iterator, Sequence
from math import isqrt, prod

Shapes = tuple[tuple[int, int], ...]
"""Rows and columns (P_f, Q_f) of each factor."""

ORDINARY_FACTOR = 16
"""A prime size up to this is a small factor by itself and needs no remark."""


def choose_factors(
    size: int, max_parameters: int | None = None, max_factor: int | None = None
) -> tuple[int, ...]:
    """Sizes n_1 <= ... <= n_F of square factors with n_1 ... n_F = size.

    Without limits: the prime factors of `size`, which is the split with the fewest entries, sum_f n_f^2. With
    limits: the split with the most entries, hence the most expressive matrix, that respects them.

    Args:
        size: the number of units N.
        max_parameters: upper limit of sum_f n_f^2, the entries of one matrix. A complex entry counts once
            here; the four gates of an LSTM have four such matrices.
        max_factor: upper limit of every n_f.

    A size whose largest prime factor breaks a limit has no split; the error says so and names a near size
    that has.

    >>> from kru import choose_factors
    >>> choose_factors(100)
    (2, 2, 5, 5)
    >>> choose_factors(2048, max_parameters=17_000)
    (16, 128)
    >>> choose_factors(2048, max_factor=8)
    (4, 8, 8, 8)
    >>> choose_factors(131, max_factor=16)
    Traceback (most recent call last):
    ...
    ValueError: size: 131 is prime, so its only factor is 131, above max_factor=16; ...
    """
    for name, value in (("size", size), ("max_parameters", max_parameters), ("max_factor", max_factor)):
        if value is None and name != "size":
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
    primes = prime_factors(size)
    if max_parameters is None and max_factor is None:
        if len(primes) == 1 and size > ORDINARY_FACTOR:
            warnings.warn(
                f"size: {size} is prime, so its only factor is one dense matrix of {size * size} entries; "
                f"{_near_size(size, primes[-1] - 1)} can be split",
                stacklevel=2,
            )
        return primes
    most = max_parameters if max_parameters is not None else size * size
    largest = max_factor if max_factor is not None else size
    least = _entries(primes)
    if primes[-1] > largest or least > most:
        raise ValueError(_no_split(size, primes, max_parameters, max_factor))
    return max(
        (split for split in splits(size) if split[-1] <= largest and _entries(split) <= most), key=_entries
    )


def prime_factors(size: int) -> tuple[int, ...]:
    """The prime factors in ascending order; (1,) for 1.

    >>> prime_factors(411)
    (3, 137)
    """
    primes = []
    rest = size
    divisor = 2
    while divisor <= isqrt(rest):
        while rest % divisor == 0:
            primes.append(divisor)
            rest //= divisor
        divisor += 1
    if rest > 1 or not primes:
        primes.append(rest)
    return tuple(sorted(primes))


def splits(size: int, smallest: int = 2) -> Iterator[tuple[int, ...]]:
    """Every way to write `size` as a product of ascending numbers >= `smallest`.

    >>> sorted(splits(12))
    [(2, 2, 3), (2, 6), (3, 4), (12,)]
    """
    yield (size,)
    for first in range(smallest, isqrt(size) + 1):
        if size % first == 0:
            for rest in splits(size // first, first):
                yield (first, *rest)


def square_shapes(factors: Sequence[int | tuple[int, int]] | None, size: int) -> Shapes:
    """The shapes of the factors of a square matrix with `size` rows; None gives the prime factors.

    >>> square_shapes([128, 16], 2048)
    ((128, 128), (16, 16))
    >>> square_shapes([(2, 3), (6, 4)], 12)
    ((2, 3), (6, 4))
    """
    if factors is None:
        factors = choose_factors(size)
    return parse_factors(factors, size, size, "hidden_size", "hidden_size")


def rectangular_shapes(rows: int, columns: int) -> Shapes:
    """Shapes of small factors of a matrix with these rows and columns: the prime factors of both, paired.

    The largest are paired with the largest. Where one side has more prime factors than the other, its
    smallest ones are multiplied together until both have equally many.

    >>> rectangular_shapes(10, 784)
    ((2, 16), (5, 49))
    """
    sides = [list(prime_factors(rows)), list(prime_factors(columns))]
    count = min(map(len, sides))
    for side in sides:
        while len(side) > count:
            side[:2] = [side[0] * side[1]]
            side.sort()
    return tuple(zip(*sides, strict=True))


def parse_factors(
    factors: Sequence[int | tuple[int, int]], rows: int, columns: int, rows_name: str, columns_name: str
) -> Shapes:
    """Convert numbers n (square factors) and pairs (P, Q) to shapes; their products have to match the matrix."""
    if isinstance(factors, str | int) or not isinstance(factors, Sequence):
        raise TypeError(
            f"factors: expected a list of sizes or of pairs (rows, columns), got {type(factors).__name__}"
        )
    if len(factors) == 0:
        raise ValueError("factors: expected at least one factor, got none")
    shapes = tuple(_parse_factor(f, factor) for f, factor in enumerate(factors))
    for position, (side, wanted, name) in enumerate(
        (("rows", rows, rows_name), ("columns", columns, columns_name))
    ):
        sizes = [shape[position] for shape in shapes]
        if prod(sizes) != wanted:
            product = " * ".join(map(str, sizes)) + (f" = {prod(sizes)}" if len(sizes) > 1 else "")
            raise ValueError(f"factors: expected {side} whose product is {name}={wanted}, got {product}")
    return shapes


def _parse_factor(position: int, factor: int | tuple[int, int]) -> tuple[int, int]:
    pair = (factor, factor) if isinstance(factor, int) else factor
    if (
        not isinstance(pair, Sequence)
        or len(pair) != 2
        or any(not isinstance(n, int) or isinstance(n, bool) for n in pair)
    ):
        raise TypeError(f"factors[{position}]: expected a size or a pair (rows, columns), got {factor!r}")
    if min(pair) <= 0:
        raise ValueError(f"factors[{position}]: expected positive sizes, got {factor!r}")
    return pair[0], pair[1]


def product_text(factors: Sequence[int | tuple[int, int]], rank: int = 1) -> str:
    """A Kronecker product, or a sum of several, for people to read.

    >>> product_text([(2, 3), (4, 4)])
    '2x3 ⊗ 4x4'
    >>> product_text([16, 8], rank=5)
    '5 x (16 ⊗ 8)'
    """
    product = " ⊗ ".join(str(n) if isinstance(n, int) else f"{n[0]}x{n[1]}" for n in factors)
    return f"{rank} x ({product})" if rank > 1 else product


def check_rank(rank: int) -> None:
    """The number of terms of a sum of Kronecker products."""
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise TypeError(f"rank: expected an integer, got {type(rank).__name__}")
    if rank <= 0:
        raise ValueError(f"rank: expected at least one Kronecker product, got {rank}")


def _entries(split: tuple[int, ...]) -> int:
    return sum(n * n for n in split)


def _no_split(size: int, primes: tuple[int, ...], max_parameters: int | None, max_factor: int | None) -> str:
    largest = primes[-1]
    what = (
        f"{size} is prime, so its only factor is {size}"
        if len(primes) == 1
        else f"{size} = {' * '.join(map(str, primes))}"
    )
    if max_factor is not None and largest > max_factor:
        limit = max_factor
        why = (
            f", above max_factor={max_factor}"
            if len(primes) == 1
            else (f", whose factor {largest} is above max_factor={max_factor}")
        )
    else:
        assert max_parameters is not None
        limit = min(largest - 1, isqrt(max_parameters))
        why = f", which has at least {_entries(primes)} entries, above max_parameters={max_parameters}"
    return f"size: {what}{why}; {_near_size(size, limit)} can be split"


def _near_size(size: int, largest: int) -> str:
    """The nearest size whose prime factors are all at most `largest`, as a product; the larger one of two."""
    distance = 1
    largest = max(largest, 2)
    while True:
        for candidate in (size + distance, size - distance):
            if candidate >= 2 and (primes := prime_factors(candidate))[-1] <= largest and len(primes) > 1:
                return f"{candidate} = {' * '.join(map(str, primes))}"
        distance += 1
