"""The fallback against the reference: values, all gradients, second derivatives, function transforms."""

import itertools
import random

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from kru.ops.kron.merged import LARGEST, SMALL, grouping
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.fallback import scan_fallback

from .scan_cases import (
    CELLS,
    INPUTS,
    SHAPES,
    TOLERANCE,
    ScanCase,
    assert_equal,
    evaluate,
    random_scan_case,
    run_reference,
    split,
)
from .test_gradients import as_function, small_case

CELL_IDS = ["-".join(cell) for cell in CELLS]
SEVERAL = ((2, 2),) * 5 + ((3, 3), (2, 2))
"""Factors that become two matrices: 96 units."""
MANY = ((2, 4), (4, 2)) * 3 + ((8, 8), (2, 2))
"""Factors that become more than two: 8,192 units."""


def run_fallback(case: ScanCase, tensors: dict[str, Tensor | None]) -> tuple[Tensor, Tensor, Tensor | None]:
    named, factors = split(tensors)
    settings = case.settings
    is_complex = settings.pop("field") == "complex"
    return scan_fallback(ScanArguments(factors=factors, **named, **settings, is_complex=is_complex))


def assert_as_reference(case: ScanCase) -> None:
    got, expected = evaluate(case, run_fallback), evaluate(case, run_reference)
    assert_equal(got, expected, TOLERANCE[case.dtype], case)


def test_groups_of_these_factors() -> None:
    counts = {shapes: len(grouping(shapes)) for shapes in (SEVERAL, MANY, ((2, 2),) * 6, ((500, 500),))}
    assert counts == {SEVERAL: 2, MANY: 3, ((2, 2),) * 6: 1, ((500, 500),): 1}


def test_groups_hold_every_factor_once_and_stay_small() -> None:
    rng = random.Random(0)
    for _ in range(300):
        shapes = [(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(rng.randint(1, 12))]
        groups = grouping(shapes)
        assert [f for first, end in groups for f in range(first, end)] == list(range(len(shapes)))
        sides = [
            max(torch.tensor(shapes[first:end]).prod(0).tolist()) for first, end in groups if end - first > 1
        ]
        bound = {1: LARGEST, 2: max(2 * LARGEST, 2 * sum(max(shape) for shape in shapes))}
        assert all(size <= bound.get(len(groups), SMALL) for size in sides), (shapes, groups)


@pytest.mark.parametrize("lengths", [None, "unsorted"])
@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_every_cell(cell: tuple[str, str, str], lengths: str | None) -> None:
    for place, (shapes, rank, inputs) in enumerate(
        itertools.product((SEVERAL, ((3, 3), (2, 2))), (None, 2), INPUTS)
    ):
        plain = {"steps": 3, "batch": 3, "dtype": torch.float64, "lengths": lengths, "seed": place}
        turned = {"reverse": place % 2 == 1, "initial": place % 3 > 0, "bias": place % 5 > 0}
        assert_as_reference(ScanCase(*cell, shapes=shapes, rank=rank, inputs=inputs, **plain, **turned))


@pytest.mark.parametrize("cell", [CELLS[1], CELLS[2], *CELLS[-2:]], ids=str)
def test_shapes_of_factors(cell: tuple[str, str, str]) -> None:
    for shapes in (*SHAPES, [(3, 137), (137, 3)], [(128, 128), (2, 2)], [(2, 2)] * 8):
        for dtype in (torch.float32, torch.float64):
            assert_as_reference(ScanCase(*cell, shapes=tuple(shapes), steps=3, batch=2, dtype=dtype))


@pytest.mark.parametrize("cell", [CELLS[1], CELLS[2], CELLS[-1]], ids=str)
def test_more_than_two_matrices(cell: tuple[str, str, str]) -> None:
    for rank in (None, 2):
        case = ScanCase(*cell, inputs="small", shapes=MANY, steps=2, batch=2, dtype=torch.float64, rank=rank)
        assert_as_reference(case)


def test_random_cases() -> None:
    rng = random.Random(1)
    for _ in range(150):
        assert_as_reference(random_scan_case(rng))


@pytest.mark.parametrize("shapes", [((2, 2), (2, 2)), SEVERAL], ids=["one matrix", "two matrices"])
@pytest.mark.parametrize("cell", [CELLS[0], CELLS[1], CELLS[3], *CELLS[-2:]], ids=str)
def test_second_derivatives(cell: tuple[str, str, str], shapes: tuple[tuple[int, int], ...]) -> None:
    for rank in (None, 2):
        case = small_case(cell, shapes=shapes, lengths="unsorted", batch=3, reverse=True, rank=rank)
        found = []
        for run in (run_fallback, run_reference):
            function, values = as_function(case, run)
            loss = sum(result.square().sum() for result in function(*values))
            first = torch.autograd.grad(loss, values, create_graph=True)
            found.append(torch.autograd.grad(sum(g.square().sum() for g in first), values))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * max(1.0, float(b.abs().max())))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("shapes", [((2, 2), (2, 2)), SEVERAL], ids=["one matrix", "two matrices"])
@pytest.mark.parametrize("cell", [CELLS[1], *CELLS[-2:]], ids=str)
def test_transforms_of_functions(cell: tuple[str, str, str], shapes: tuple[tuple[int, int], ...]) -> None:
    case = small_case(cell, shapes=shapes)
    fast, values = as_function(case, run_fallback)
    plain, _ = as_function(case, run_reference)
    leaves = [value.detach() for value in values]
    places = tuple(range(len(leaves)))
    gradients = [
        torch.func.grad(lambda *v, f=f: f(*v)[1].square().sum(), places)(*leaves) for f in (fast, plain)
    ]
    torch.testing.assert_close(*gradients)
    with forward_ad.dual_level():
        tangents = [
            forward_ad.unpack_dual(f(*(forward_ad.make_dual(v, v.cos()) for v in leaves))[0]).tangent
            for f in (fast, plain)
        ]
    torch.testing.assert_close(*tangents)
    several = [torch.stack([leaf, 0.5 * leaf, leaf.flip(0)]) for leaf in leaves]
    torch.testing.assert_close(torch.vmap(fast)(*several), torch.vmap(plain)(*several))


@pytest.mark.parametrize("shapes", [((2, 2), (3, 3)), SEVERAL], ids=["one matrix", "two"])
@pytest.mark.parametrize("cell", CELLS[:-2], ids=CELL_IDS[:-2])
def test_leak(cell: tuple[str, str, str], shapes: tuple[tuple[int, int], ...]) -> None:
    assert_as_reference(ScanCase(*cell, shapes=shapes, lengths="unsorted", leak=True, dtype=torch.float64))
