"""scan against the dense equations and the reference: states, last states and every gradient."""

import itertools
import random
from dataclasses import replace

import pytest
import torch

from kru.ops import scan
from kru.ops.scan import contract

from .scan_cases import (
    CELLS,
    INPUTS,
    SHAPES,
    TOLERANCE,
    ScanCase,
    assert_equal,
    assert_three_ways,
    evaluate,
    random_scan_case,
    run_reference,
    run_scan,
)

LENGTHS = [None, "equal", "unsorted"]
CELL_IDS = ["-".join(cell) for cell in CELLS]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_three_ways(cell: tuple[str, str, str], inputs: str, lengths: str | None, reverse: bool) -> None:
    """Shapes, dtype, initial states, bias and loss change from one combination to the next."""
    places = (CELLS.index(cell), list(INPUTS).index(inputs), LENGTHS.index(lengths), int(reverse))
    index = sum(place * stride for place, stride in zip(places, (1, 2, 5, 7), strict=True))
    case = ScanCase(
        *cell,
        inputs=inputs,
        shapes=tuple(SHAPES[index % len(SHAPES)]),
        steps=4 + index % 2,
        lengths=lengths,
        reverse=reverse,
        initial=index % 3 > 0,
        bias=index % 4 > 0,
        dtype=(torch.float32, torch.float64)[sum(places) % 2],
        loss=("all", "states", "last")[index % 3],
        threads=2 if index % 4 == 0 else 1,
        seed=index,
    )
    assert_three_ways(case)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("cell", CELLS[:-2], ids=CELL_IDS[:-2])
def test_leak_three_ways(cell: tuple[str, str, str], inputs: str, reverse: bool) -> None:
    index = CELLS.index(cell) + list(INPUTS).index(inputs)
    for dtype, lengths in itertools.product(TOLERANCE, (None, "unsorted")):
        shapes = tuple(SHAPES[(index + 3 * reverse) % len(SHAPES)])
        assert_three_ways(
            ScanCase(
                *cell, inputs=inputs, shapes=shapes, lengths=lengths, reverse=reverse, dtype=dtype, leak=True,
                seed=index, initial=index % 2 > 0, threads=1 + index % 2, rank=2 if index % 3 == 0 else None,
            )
        )  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_resets_three_ways(cell: tuple[str, str, str], reverse: bool) -> None:
    """Shapes of every form of the matrix; blocks of one row and of several."""
    place = CELLS.index(cell)
    for index, (inputs, lengths) in enumerate(itertools.product(INPUTS, (None, "unsorted"))):
        case = ScanCase(
            *cell, inputs=inputs, shapes=tuple(SHAPES[(place + index) % len(SHAPES)]), lengths=lengths,
            reverse=reverse, reset=True, initial=index % 3 > 0, dtype=list(TOLERANCE)[index % 2], steps=7,
            batch=1 + 3 * (index % 2), threads=1 + index % 2, leak=cell[0] == "elman" and index == 3,
            rank=2 if index == 5 else None, seed=index,
        )  # fmt: skip
        assert_three_ways(case)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("nonlinearity", ["modrelu", "tanh"])
def test_leak_and_shapes(nonlinearity: str, shapes: list[tuple[int, int]]) -> None:
    for batch in (1, 5):
        case = ScanCase("elman", nonlinearity, "complex", shapes=tuple(shapes), batch=batch, leak=True)
        assert_three_ways(replace(case, lengths="unsorted", dtype=torch.float64))


def test_one_leak_for_all_units() -> None:
    case = ScanCase("elman", "tanh", "real", dtype=torch.float64)
    tensors = case.tensors()
    plain = run_scan(case, tensors)
    for leak in (1.0, torch.tensor(1.0, dtype=torch.float64)):
        torch.testing.assert_close(run_scan(case, {**tensors, "leak": leak})[0], plain[0])
    each = run_scan(case, {**tensors, "leak": torch.full((case.units,), 0.3, dtype=torch.float64)})
    learnt = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    one = run_scan(case, {**tensors, "leak": learnt})
    torch.testing.assert_close(one[0], each[0])
    torch.testing.assert_close(run_scan(case, {**tensors, "leak": 0.3})[0], each[0])
    one[0].sum().backward()
    assert learnt.grad is not None
    assert learnt.grad != 0


@pytest.mark.parametrize(
    ("cell", "leak", "message"),
    [
        ("elman", 0.0, r"leak: expected a number in \(0, 1\], got 0.0"),
        ("elman", 1.5, r"leak: expected a number in \(0, 1\], got 1.5"),
        ("elman", torch.ones(5), r"leak: expected shape \(32\), got \(5,\)"),
        ("gru", torch.ones(32), "leak: expected None for the gru cell"),
    ],
)
def test_bad_leaks_are_named(cell: str, leak: object, message: str) -> None:
    case = ScanCase(cell, "tanh", "real")
    with pytest.raises(ValueError, match=message):
        run_scan(case, {**case.tensors(), "leak": leak})


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("cell", [("elman", "modrelu", "complex"), *CELLS[-2:]], ids=str)
def test_shapes(cell: tuple[str, str, str], shapes: list[tuple[int, int]]) -> None:
    for dtype in TOLERANCE:
        assert_three_ways(ScanCase(*cell, shapes=tuple(shapes), dtype=dtype, lengths="unsorted", batch=3))


@pytest.mark.parametrize("seed", range(4))
def test_many_random_scans(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        assert_three_ways(random_scan_case(rng))


@pytest.mark.parametrize("cell", [*CELLS[:2], *CELLS[-2:]], ids=str)
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (3, 0), (0, 0), (1, 1), (1, 7)])
def test_few_steps_and_sequences(cell: tuple[str, str, str], steps: int, batch: int) -> None:
    for inputs, lengths in itertools.product(INPUTS, [None, "equal"]):
        assert_three_ways(ScanCase(*cell, inputs=inputs, steps=steps, batch=batch, lengths=lengths))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 40])
@pytest.mark.parametrize("cell", [*CELLS[:3], *CELLS[-2:]], ids=str)
def test_sizes_of_the_input(cell: tuple[str, str, str], size: int) -> None:
    assert_three_ways(ScanCase(*cell, inputs="small", size=size, lengths="unsorted"))
    assert_three_ways(ScanCase(*cell, inputs="small", size=size, bias=False, dtype=torch.float64))


@pytest.mark.parametrize("cell", [*CELLS[:3], *CELLS[-2:]], ids=str)
def test_large_table_of_symbols(cell: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Symbols of a table too large for a gradient in each thread are looked up before the kernel."""
    case = ScanCase(*cell, inputs="symbols", lengths="unsorted", batch=5)
    inside = evaluate(case, run_scan)
    monkeypatch.setattr(contract, "SMALL_TABLE", 0)
    outside = evaluate(case, run_scan)
    assert_equal(outside, inside, TOLERANCE[case.dtype], case)
    assert_three_ways(case)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_kinds_of_integers(dtype: torch.dtype) -> None:
    case = ScanCase(inputs="symbols", lengths="unsorted")
    tensors = case.tensors()
    expected = run_reference(case, tensors)
    tensors["x"], tensors["lengths"] = tensors["x"].to(dtype), tensors["lengths"].to(dtype)
    for got, want in zip(run_scan(case, tensors)[:2], expected[:2], strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_strides(cell: tuple[str, str, str]) -> None:
    """Whatever the memory looks like, numbers are those of contiguous tensors, in both directions."""

    def scattered(tensor: torch.Tensor) -> torch.Tensor:
        wider = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), float("nan")).to(tensor.dtype)
        wider[..., 1::2] = tensor
        turned = wider.transpose(0, -1).contiguous().transpose(0, -1)
        return turned[..., 1::2]

    for inputs in INPUTS:
        case = ScanCase(*cell, inputs=inputs, lengths="unsorted")

        def run_scattered(case, tensors):
            return run_scan(case, {name: None if t is None else scattered(t) for name, t in tensors.items()})

        got, expected = evaluate(case, run_scattered), evaluate(case, run_scan)
        for name in expected:
            assert torch.equal(got[name], expected[name]), (case, name)


@pytest.mark.parametrize("cell", [("elman", "tanh", "real"), ("lstm", "tanh", "real")], ids=str)
def test_negative_bit_and_expanded(cell: tuple[str, str, str]) -> None:
    case = ScanCase(*cell, batch=3)
    tensors = case.tensors()
    tensors["h0"] = tensors["h0"][:1].expand(3, -1)
    tensors["x"] = torch.complex(tensors["x"], tensors["x"]).conj().imag
    tensors["factors.0"] = torch._neg_view(tensors["factors.0"])
    plain = {name: t if t is None else t.clone().resolve_neg() for name, t in tensors.items()}
    assert tensors["x"].is_neg()
    for got, want in zip(run_scan(case, tensors)[:2], run_scan(case, plain)[:2], strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("nonlinearity", ["modrelu", "tanh"])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_long_rows_and_many_steps(field: str, nonlinearity: str) -> None:
    """Rows longer than a block of the cache, more steps than the gradient collects at once."""
    shapes = ((2, 2),) * 11
    case = ScanCase(
        "elman", nonlinearity, field, shapes=shapes, steps=6, batch=3, lengths="unsorted", threads=2
    )
    assert_three_ways(case, dense=False)
    assert_three_ways(replace(case, dtype=torch.float64), dense=False)
    many = replace(case, shapes=((3, 3), (2, 2)), steps=300, batch=5, dtype=torch.float64)
    assert_three_ways(many, dense=False)


@pytest.mark.parametrize("cell", [*CELLS[:4], *CELLS[-2:]], ids=str)
@pytest.mark.parametrize("shapes", [((64, 64),), ((40, 40), (3, 3)), ((2, 2), (48, 48))], ids=str)
def test_large_factors_and_batches(cell: tuple[str, str, str], shapes: tuple[tuple[int, int], ...]) -> None:
    for batch in (1, 37):
        case = ScanCase(*cell, shapes=shapes, batch=batch, steps=2, lengths="unsorted")
        assert_three_ways(case, dense=False)


@pytest.mark.parametrize("cell", [("elman", "modrelu", "complex"), *CELLS[-2:]], ids=str)
@pytest.mark.parametrize("smallest", [0.0, 1e-9, 1e-3, 0.05, 0.5])
def test_singular_factors(cell: tuple[str, str, str], smallest: float) -> None:
    """Factors of 2x2 far from singular take their gradients another way than those close to it."""
    for dtype in TOLERANCE:
        assert_three_ways(ScanCase(*cell, dtype=dtype, steps=3, singular=smallest))


def test_last_state_of_each_length() -> None:
    """h is the state after a sequence's own last step, h0 for a length of zero; states beyond are zero."""
    for reverse in (False, True):
        case = ScanCase("gru", "tanh", "real", steps=6, batch=5, lengths="unsorted", reverse=reverse)
        tensors = case.tensors()
        states, h, _ = run_scan(case, tensors)
        for b, length in enumerate(tensors["lengths"].tolist()):
            assert not states[length:, b].count_nonzero()
            last = 0 if reverse else length - 1
            assert torch.equal(h[b], states[last, b] if length else tensors["h0"][b])
        assert 0 in tensors["lengths"]


def test_reverse_is_forward_on_reversed_input() -> None:
    case = ScanCase("lstm", "tanh", "real", inputs="small", steps=7)
    tensors = case.tensors()
    states, h, c = run_scan(case, {**tensors, "x": tensors["x"].flip(0)})
    back = run_scan(replace(case, reverse=True), tensors)
    assert torch.equal(back[0], states.flip(0))
    assert torch.equal(back[1], h)
    assert torch.equal(back[2], c)


def test_symbols_are_one_hot_vectors() -> None:
    case = ScanCase(inputs="symbols")
    tensors = case.tensors()
    vectors = torch.nn.functional.one_hot(tensors["x"], 5).float()
    for got, want in zip(
        run_scan(case, tensors)[:2], run_scan(case, {**tensors, "x": vectors})[:2], strict=True
    ):
        torch.testing.assert_close(got, want)


def test_nan_stays_in_its_sequence() -> None:
    for cell, inputs in itertools.product(CELLS, ("small", "large", "part")):
        case = ScanCase(*cell, inputs=inputs, shapes=((3, 3),), bias=False)
        if cell[1] == "relu":  # a negative part of the state could hide it
            continue
        tensors = case.tensors()
        tensors["x"][1, 2] = float("nan")
        states, h, _ = run_scan(case, tensors)
        assert h[2].isnan().all(), case
        assert states[1:, 2].isnan().all(), case
        assert not h[[0, 1, 3]].isnan().any(), case
        assert not states[0].isnan().any(), case


@pytest.mark.parametrize("field", ["real", "complex"])
def test_nan_is_not_hidden_by_nonlinearities(field: str) -> None:
    for nonlinearity in ("modrelu", "tanh", "relu", "identity"):
        x = torch.full((2, 3, 4 if field == "real" else 8), float("nan"))
        factors = [torch.eye(4) if field == "real" else torch.stack([torch.eye(4), torch.zeros(4, 4)])]
        assert scan(x, None, factors, field=field, nonlinearity=nonlinearity).states.isnan().all(), (
            nonlinearity
        )


def test_infinity_saturates_or_stays() -> None:
    x = torch.tensor([float("inf"), float("-inf"), 1e30, -1e30]).repeat(2, 1, 1)
    for nonlinearity, dtype in itertools.product(("tanh", "relu", "identity"), TOLERANCE):
        factors = [torch.zeros(4, 4, dtype=dtype)]
        h = scan(x[:1].to(dtype), None, factors, field="real", nonlinearity=nonlinearity).h
        function = {"tanh": torch.tanh, "relu": torch.relu}.get(nonlinearity, lambda z: z)
        torch.testing.assert_close(h[0], function(x[0, 0].to(dtype)))
    extreme = torch.tensor([1e4, -1e4, 200.0, -200.0]).repeat(1, 1, 4)
    for cell, gates in (("lstm", 4), ("gru", 3)):
        part = extreme[..., : 4 * gates]
        h = scan(part, None, [torch.zeros(gates, 4, 4)], cell=cell, field="real").h
        assert h.isfinite().all()
