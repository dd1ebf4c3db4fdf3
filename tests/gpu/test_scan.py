"""scan on the GPU kernels, interpreted, against the dense equations in double precision: results and all gradients.

Fresh tensors are full of NaN, so that whatever a kernel forgets to write, or reads beyond its part, shows. KRU_FULL=1
adds many random cases; `make gpu-check` runs the tests of the CPU's kernels in the same way.
"""

import os
import random
from dataclasses import replace

import pytest
import torch
from torch.library import opcheck

import kru
from kru.ops import scan
from kru.ops.scan import triton
from kru.ops.scan.arguments import TENSORS

from ..ops.scan_cases import (
    CELLS,
    INPUTS,
    TOLERANCE,
    ScanCase,
    assert_equal,
    evaluate,
    random_scan_case,
    run_dense,
    run_scan,
    split,
)

SHAPES = [
    ((2, 2),) * 3,
    ((3, 3), (2, 2)),
    ((2, 2),) * 2,
    ((5, 5),),
    ((2, 3), (3, 2)),
    ((2, 2),) * 4,
    ((40, 1), (1, 40)),
]
"""2x2; odd and padded sizes; rectangular; several tiles."""
ELMAN, GATED = CELLS[:-2], CELLS[-2:]


def assert_agrees(case: ScanCase) -> None:
    assert_equal(evaluate(case, run_scan), evaluate(case, run_dense), TOLERANCE[case.dtype], case)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_every_cell(cell: tuple[str, str, str], reverse: bool) -> None:
    """All that can be given, in different combinations."""
    for place in range(2):
        index = 2 * CELLS.index(cell) + reverse + 3 * place
        assert_agrees(
            ScanCase(
                *cell, inputs=list(INPUTS)[index % 4], shapes=SHAPES[index % len(SHAPES)], steps=3 + index % 2, batch=3,
                lengths=(None, "unsorted")[(index + place) % 2], reverse=reverse, initial=index % 3 > 0,
                bias=index % 4 > 0, loss=("all", "states", "last")[index % 3], rank=2 if index % 5 == 4 else None,
                leak=cell[0] == "elman" and index % 3 == 1, reset=index % 3 == 2, seed=index,
            )
        )  # fmt: skip


@pytest.mark.parametrize("shapes", [SHAPES[0], SHAPES[1]], ids=["2x2", "others"])
@pytest.mark.parametrize("cell", [CELLS[1], CELLS[2], *GATED], ids="-".join)
def test_resets_and_lengths(cell: tuple[str, str, str], shapes: tuple[tuple[int, int], ...]) -> None:
    for index, reverse in enumerate((False, True)):
        leak = cell[0] == "elman" and index > 0
        assert_agrees(
            ScanCase(
                *cell, shapes=shapes, lengths="unsorted", reverse=reverse, reset=True, leak=leak, steps=5
            )
        )


@pytest.mark.parametrize("shapes", [SHAPES[0], SHAPES[3]], ids=["2x2", "dense"])
@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (2, 0), (1, 1)])
def test_few_steps_and_sequences(steps: int, batch: int, shapes: tuple[tuple[int, int], ...]) -> None:
    case = ScanCase(shapes=shapes, steps=steps, batch=batch, lengths="equal", reset=True)
    if batch:
        assert_agrees(case)
    else:
        assert not any(t.isnan().any() for t in evaluate(case, run_scan).values())


def test_several_sequences_in_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are more of them than the GPU has processors."""
    monkeypatch.setattr(triton.gpu, "processors", lambda tensor: 1)
    for cell in (CELLS[1], CELLS[-2], CELLS[-1]):
        case = ScanCase(*cell, shapes=((7, 7),), batch=5, lengths="unsorted", reset=True, steps=3)
        plan = triton.Plan([[[torch.ones(7, 7)]]], case.batch, 1, adjoint=False)
        assert plan.rows > 1
        assert_agrees(case)


def test_random_scans() -> None:
    rng = random.Random(5)
    for _ in range(150 if os.environ.get("KRU_FULL") else 6):
        case = random_scan_case(rng)
        if case.batch:
            assert_agrees(
                replace(case, dtype=torch.float32, leak=case.cell == "elman" and rng.random() < 0.4)
            )


def test_only_the_wanted_gradients() -> None:
    for cell, shapes in ((CELLS[1], SHAPES[0]), (CELLS[1], SHAPES[1]), (CELLS[-1], SHAPES[1])):
        case = ScanCase(*cell, shapes=shapes, steps=2, batch=2, leak=cell[0] == "elman", reset=True)
        every = evaluate(case, run_scan)
        tensors = case.tensors()
        for name in (n for n, t in tensors.items() if t is not None and t.is_floating_point()):
            leaf = tensors[name].requires_grad_()
            generator = torch.Generator().manual_seed(case.seed + 1)
            results = [r for r in run_scan(case, tensors) if r is not None]
            loss = sum((r * torch.randn(r.shape, generator=generator)).sum() for r in results)
            (gradient,) = torch.autograd.grad(loss, leaf)
            torch.testing.assert_close(gradient, every[f"d{name}"], rtol=1e-4, atol=1e-5)
            leaf.requires_grad_(False)


@pytest.mark.parametrize("cell", [CELLS[1], CELLS[-2]], ids="-".join)
def test_registration(cell: tuple[str, str, str]) -> None:
    case = ScanCase(*cell, shapes=SHAPES[1], steps=2, batch=2, lengths="unsorted")
    named, factors = split(case.tensors())
    ordered = [named.pop("x"), named.pop("weight"), factors]
    names = triton.ScanArguments._fields
    ordered += [named[name] for name in names[3:TENSORS]]
    ordered += [case.cell, case.nonlinearity, case.field == "complex", case.reverse, 0, True, True]
    opcheck(torch.ops.kru.scan.default, tuple(ordered), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_compile_and_export() -> None:
    torch.manual_seed(0)
    layer = kru.KRU(3, 8)
    x = torch.randn(3, 2, 3)
    expected = layer(x)[0]
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x)[0], expected)
    program = torch.export.export(layer, (x,))
    assert any("kru.scan" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x)[0], expected)


def test_second_derivatives() -> None:
    case = ScanCase("elman", "tanh", "real", shapes=SHAPES[0], steps=2, batch=2)

    def twice(dtype):
        named, factors = split({name: t if t is None else t.to(dtype) for name, t in case.tensors().items()})
        leaves = [t.requires_grad_() for t in factors]
        result = scan(named.pop("x"), named.pop("weight"), leaves, **named, **case.settings)
        first = torch.autograd.grad(result.h.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    for got, expected in zip(twice(torch.float32), twice(torch.float64), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cell", [CELLS[1], CELLS[-1]], ids="-".join)
def test_autocast_keeps_the_precision(cell: tuple[str, str, str]) -> None:
    case = ScanCase(*cell, shapes=SHAPES[0], inputs="large", steps=2, batch=2)
    expected = evaluate(case, run_scan)

    def under_autocast(case, tensors):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            named, factors = split(tensors)
            results = [named.pop("x"), named.pop("weight"), factors]
            ordered = [named[name] for name in triton.ScanArguments._fields[3:TENSORS]]
            found = torch.ops.kru.scan(
                *results,
                *ordered,
                case.cell,
                case.nonlinearity,
                case.field == "complex",
                case.reverse,
                0,
                True,
                True,
            )
            return found[0], found[1], found[2] if case.cell == "lstm" else None

    for name, tensor in evaluate(case, under_autocast).items():
        torch.testing.assert_close(tensor, expected[name])


def test_nan_stays_in_its_sequence_and_is_not_hidden() -> None:
    for cell, shapes in (
        (CELLS[1], SHAPES[0]),
        (CELLS[3], SHAPES[0]),
        (CELLS[-1], SHAPES[3]),
        (CELLS[5], SHAPES[3]),
    ):
        case = ScanCase(*cell, inputs="part", shapes=shapes, bias=False, steps=3, batch=2)
        tensors = case.tensors()
        tensors["x"][1, 1] = float("nan")
        states, h, _ = run_scan(case, tensors)
        assert h[1].isnan().all(), case
        assert states[1:, 1].isnan().all(), case
        assert not states[:, 0].isnan().any(), case
        assert not states[0].isnan().any(), case


def test_layers() -> None:
    """A step of training with lengths, both directions and the kernels' own dtype."""
    torch.manual_seed(0)
    for kind in (kru.KRU, kru.KRULSTM):
        layer = kind(3, 4, bidirectional=True)
        wide = kind(3, 4, bidirectional=True, dtype=torch.float64)
        wide.load_state_dict(layer.state_dict())
        x, lengths = torch.randn(3, 2, 3), torch.tensor([3, 1])
        for own, dtype in ((layer, torch.float32), (wide, torch.float64)):
            own(x.to(dtype), lengths=lengths)[0].square().sum().backward()
        for (name, got), expected in zip(layer.named_parameters(), wide.parameters(), strict=True):
            torch.testing.assert_close(got.grad.double(), expected.grad, rtol=1e-4, atol=1e-4, msg=name)


def test_lengths_beyond_the_steps_are_refused_or_cut() -> None:
    """On the CPU they are an error; a kernel that gets them nevertheless stays within its memory."""
    case = ScanCase(shapes=SHAPES[0], steps=2, batch=2)
    tensors = {**case.tensors(), "lengths": torch.tensor([5, -1])}
    with pytest.raises(ValueError, match="lengths: expected values from 0 to the 2 steps"):
        run_scan(case, tensors)
