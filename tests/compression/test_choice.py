"""Which factors and how many terms are chosen."""

import pytest
import torch

import kru
from kru.compression.choice import Candidate, candidates, choose, two_factor_splits


def test_candidates_have_the_errors_that_come_out() -> None:
    torch.manual_seed(0)
    matrices = [torch.randn(12, 12, dtype=torch.float64) for _ in range(2)]
    found = candidates(matrices, None)
    assert {candidate.shapes for candidate in found} == set(two_factor_splits(12, 12))
    for candidate in found[::7]:
        nearest = [kru.nearest_kronecker(m, candidate.shapes, candidate.rank) for m in matrices]
        assert candidate.loss == pytest.approx(sum(n.error**2 for n in nearest), abs=1e-9)
        assert candidate.parameters == sum(f.numel() for n in nearest for f in n.factors)
        assert candidate.parameters < 2 * 144
    assert {candidate.rank for candidate in candidates(matrices, 3)} == {3}


def test_the_most_is_made_of_the_parameters() -> None:
    shapes = ((2, 2), (3, 3))
    important = [Candidate(shapes, r, 10 * r, 1 / r) for r in (1, 2, 3, 4)]
    unimportant = [Candidate(shapes, r, 10 * r, 0.01 / r) for r in (1, 2, 3, 4)]
    chosen = choose([important, unimportant], 50)
    assert [candidate.rank for candidate in chosen] == [4, 1]
    chosen = choose([important, unimportant], 75)
    assert [candidate.rank for candidate in chosen] == [4, 3]
    with pytest.raises(ValueError, match=r"max_parameters: expected at least 20, .*, got 19"):
        choose([important, unimportant], 19)


def test_splits_have_the_matrix_s_proportions() -> None:
    for rows, columns in ((128, 128), (512, 784), (10, 7), (7, 7)):
        for (p, q), (r, s) in two_factor_splits(rows, columns):
            assert (p * r, q * s) == (rows, columns)
