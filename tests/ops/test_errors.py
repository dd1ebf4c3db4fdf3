"""Bad arguments: an error that names the argument, what came and what was expected, and never a crash."""

import itertools
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kru
from kru.ops import scan

FACTORS = [torch.eye(2), torch.eye(3)]
X = torch.ones(4, 6)
KRON = [
    ("list as x", [[1.0] * 6], FACTORS, TypeError, "x: expected a tensor, got list"),
    ("None as x", None, FACTORS, TypeError, "x: expected a tensor, got NoneType"),
    ("number as x", 1.0, FACTORS, TypeError, "x: expected a tensor, got float"),
    ("scalar", torch.tensor(1.0), FACTORS, ValueError, r"x: expected shape \(\.\.\., K\), got a scalar"),
    ("no factors", X, [], ValueError, "factors: expected a list of at least one matrix, got none"),
    ("no list", X, None, TypeError, "factors: expected a list .*, got NoneType"),
    ("number of factors", X, 2, TypeError, "factors: expected a list .*, got int"),
    ("one tensor", X, torch.eye(6), TypeError, "factors: expected a list .*, got Tensor"),
    ("list as factor", X, [torch.eye(2), [[1.0]]], TypeError, r"factors\[1\]: expected a tensor, got list"),
    ("None as factor", X, [None, torch.eye(3)], TypeError, r"factors\[0\]: expected a tensor, got NoneType"),
    ("vector", X, [torch.ones(6)], ValueError, r"factors\[0\]: .*matrix \(P, Q\).* got shape \(6,\)"),
    (
        "stack",
        X,
        [torch.eye(2), torch.ones(1, 3, 3)],
        ValueError,
        r"factors\[1\]: .*matrix.*got shape \(1, 3, 3\)",
    ),
    (
        "other ranks",
        X,
        [torch.ones(2, 2, 2), torch.ones(3, 3, 3)],
        ValueError,
        r"factors\[1\]: .*in all factors \(R, P, Q\), got shape \(3, 3, 3\)",
    ),
    ("no terms", X, [torch.ones(0, 6, 6)], ValueError, r"factors\[0\]: .* got shape \(0, 6, 6\)"),
    ("empty matrix", X, [torch.ones(0, 6)], ValueError, r"factors\[0\]: .* got shape \(0, 6\)"),
    ("no columns", torch.ones(4, 0), [torch.ones(6, 0)], ValueError, r"factors\[0\]: .* got shape \(6, 0\)"),
    ("too many", X, [torch.eye(2)] * 3, ValueError, r"x: expected .* 2 \* 2 \* 2 = 8, got shape \(4, 6\)"),
    ("too few", X, [torch.eye(2)], ValueError, r"x: expected a last dimension of 2 = 2, got shape \(4, 6\)"),
    ("many too many", X, [torch.eye(2)] * 70, ValueError, r"x: expected a last dimension of 2 \* "),
    (
        "double factor",
        X,
        [torch.eye(2), torch.eye(3).double()],
        TypeError,
        r"factors\[1\]: .*float32, got .*float64",
    ),
    (
        "double x",
        X.double(),
        FACTORS,
        TypeError,
        r"factors\[0\]: expected x's dtype .*float64, got .*float32",
    ),
    ("complex x", X.to(torch.complex64), FACTORS, TypeError, r"factors\[0\]: .*complex64, got .*float32"),
    (
        "other device",
        X,
        [torch.eye(2, device="meta"), torch.eye(3)],
        ValueError,
        r"factors\[0\]: .*cpu, got meta",
    ),
    ("x elsewhere", X.to("meta"), FACTORS, ValueError, r"factors\[0\]: expected x's device meta, got cpu"),
    *[
        (f"{kind} of four", torch.ones(4, 16), [torch.eye(2)] * 2 + [odd] + [torch.eye(2)], error, message)
        for kind, odd, error, message in (
            ("dtype", torch.eye(2).double(), TypeError, r"factors\[2\]: .*float32, got .*float64"),
            ("shape", torch.eye(3), ValueError, r"x: expected .* 2 \* 2 \* 3 \* 2 = 24"),
            ("device", torch.eye(2, device="meta"), ValueError, r"factors\[2\]: .*cpu, got meta"),
            ("type", 1.0, TypeError, r"factors\[2\]: expected a tensor, got float"),
        )
    ],
]


@pytest.mark.parametrize(
    ("x", "factors", "error", "message"), [k[1:] for k in KRON], ids=[k[0] for k in KRON]
)
def test_bad_product(x, factors, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kru.kron_matmul(x, factors)
    if isinstance(x, Tensor) and x.is_floating_point():
        with pytest.raises(error, match=message):
            kru.kron_matmul(x.clone().requires_grad_(), factors)


def arguments(**changes) -> tuple[list[object], dict[str, object]]:
    """Good arguments of a real scan with 5 steps, 4 sequences, 2 inputs and 6 units, but for the changes."""
    cell = changes.get("cell", "elman")
    gates = {"lstm": 4, "gru": 3}.get(cell, 1) if isinstance(cell, str) else 1
    factors = FACTORS if gates == 1 else [f.repeat(gates, 1, 1) for f in FACTORS]
    good = {"x": torch.ones(5, 4, 2), "weight": torch.ones(6 * gates, 2), "factors": factors, "field": "real"}
    given = {**good, **changes}
    return [given.pop(name) for name in ("x", "weight", "factors")], given


SCAN = [
    ("list as x", {"x": [[[1.0]]]}, TypeError, "x: expected a tensor, got list"),
    ("None as x", {"x": None}, TypeError, "x: expected a tensor, got NoneType"),
    ("int as x", {"x": 3}, TypeError, "x: expected a tensor, got int"),
    ("scalar", {"x": torch.tensor(1.0)}, ValueError, r"x: expected shape \(T, B, D\), got shape \(\)"),
    ("no batch", {"x": torch.ones(5, 2)}, ValueError, r"x: expected shape \(T, B, D\), got shape \(5, 2\)"),
    ("bool", {"x": torch.ones(5, 4, dtype=torch.bool)}, TypeError, "x: expected .* symbols, got torch.bool"),
    (
        "bytes",
        {"x": torch.ones(5, 4, dtype=torch.uint8)},
        TypeError,
        "x: expected .* symbols, got torch.uint8",
    ),
    (
        "complex",
        {"x": torch.ones(5, 4, 2) + 0j},
        TypeError,
        "x: expected a floating point .* got torch.complex64",
    ),
    (
        "symbols with D",
        {"x": torch.ones(5, 4, 2).long()},
        ValueError,
        r"x: expected symbols \(T, B\), got shape",
    ),
    (
        "symbols, no weight",
        {"x": torch.zeros(5, 4).long(), "weight": None},
        ValueError,
        "weight: expected the input",
    ),
    ("large symbol", {"x": torch.full((5, 4), 2)}, IndexError, "x: expected symbols from 0 to 1, got 2"),
    ("negative symbol", {"x": torch.full((5, 4), -1)}, IndexError, "x: expected symbols from 0 to 1, got -1"),
    (
        "part of another size",
        {"weight": None},
        ValueError,
        r"x: without a weight .* dimension of 6, got .*\(5, 4, 2\)",
    ),
    ("list as weight", {"weight": [[1.0]]}, TypeError, "weight: expected a tensor, got list"),
    ("weight", {"weight": torch.ones(6, 3)}, ValueError, r"weight: expected shape \(6, 2\), got \(6, 3\)"),
    (
        "turned weight",
        {"weight": torch.ones(2, 6)},
        ValueError,
        r"weight: expected shape \(6, 2\), got \(2, 6\)",
    ),
    (
        "weight of gates",
        {"cell": "lstm", "weight": torch.ones(6, 2)},
        ValueError,
        r"weight: expected shape \(24, 2\)",
    ),
    ("no factors", {"factors": []}, ValueError, "factors: expected at least one matrix, got none"),
    ("no list", {"factors": None}, TypeError, "factors: expected a list .*, got NoneType"),
    ("one tensor", {"factors": torch.eye(6)}, TypeError, "factors: expected a list .*, got Tensor"),
    ("list as factor", {"factors": [[[1.0]]]}, TypeError, r"factors\[0\]: expected a tensor, got list"),
    (
        "vector",
        {"factors": [torch.ones(6)]},
        ValueError,
        r"factors\[0\]: expected shape \(P, Q\), or \(R, P, Q\) for R terms, got \(6,\)",
    ),
    (
        "real as complex",
        {"field": "complex"},
        ValueError,
        r"factors\[0\]: expected shape \(2, P, Q\), .* got \(2, 2\)",
    ),
    (
        "other ranks",
        {"factors": [torch.ones(2, 2, 2), torch.ones(3, 3, 3)]},
        ValueError,
        r"factors\[1\]: expected as many terms as in factors\[0\] of shape \(2, 2, 2\), got \(3, 3, 3\)",
    ),
    ("gates", {"cell": "gru", "factors": FACTORS}, ValueError, r"factors\[0\]: expected shape \(3, P, Q\)"),
    (
        "not square",
        {"factors": [torch.ones(2, 3)]},
        ValueError,
        r"factors: expected a square .* 2 x 3 from .*\(2, 3\)",
    ),
    ("empty factor", {"factors": [torch.ones(0, 0)]}, ValueError, r"factors\[0\]: expected .* got \(0, 0\)"),
    (
        "dtype",
        {"x": torch.ones(5, 4, 2).double()},
        TypeError,
        "weight: expected dtype .*float64, got .*float32",
    ),
    (
        "dtype of a factor",
        {"factors": [FACTORS[0], FACTORS[1].double()]},
        TypeError,
        r"factors\[1\]: .*got .*float64",
    ),
    (
        "half",
        {"weight": torch.ones(6, 2).half()},
        TypeError,
        "weight: expected dtype .*float32, got .*float16",
    ),
    (
        "device",
        {"weight": torch.ones(6, 2, device="meta")},
        ValueError,
        "weight: expected x's device cpu, got meta",
    ),
    (
        "device of a factor",
        {"factors": [FACTORS[0], torch.eye(3, device="meta")]},
        ValueError,
        r"factors\[1\]: .*meta",
    ),
    (
        "device of x",
        {"x": torch.ones(5, 4, 2, device="meta")},
        ValueError,
        "weight: expected x's device meta, got cpu",
    ),
    ("bias", {"bias": torch.ones(7)}, ValueError, r"bias: expected shape \(6\), got \(7,\)"),
    ("number as bias", {"bias": 1.0}, TypeError, "bias: expected a tensor, got float"),
    (
        "bias of gates",
        {"cell": "gru", "bias": torch.ones(6)},
        ValueError,
        r"bias: expected shape \(18\), got \(6,\)",
    ),
    (
        "recurrent bias",
        {"recurrent_bias": torch.ones(6)},
        ValueError,
        "recurrent_bias: expected None for the elman",
    ),
    (
        "its shape",
        {"cell": "gru", "recurrent_bias": torch.ones(5)},
        ValueError,
        r"recurrent_bias: expected shape \(6\)",
    ),
    ("h0", {"h0": torch.ones(4, 5)}, ValueError, r"h0: expected shape \(4, 6\), got \(4, 5\)"),
    ("h0 of one", {"h0": torch.ones(6)}, ValueError, r"h0: expected shape \(4, 6\), got \(6,\)"),
    ("h0 dtype", {"h0": torch.ones(4, 6).double()}, TypeError, "h0: expected dtype .*float32, got .*float64"),
    (
        "h0 device",
        {"h0": torch.ones(4, 6, device="meta")},
        ValueError,
        "h0: expected x's device cpu, got meta",
    ),
    ("list as h0", {"h0": [0.0]}, TypeError, "h0: expected a tensor, got list"),
    ("c0", {"c0": torch.ones(4, 6)}, ValueError, "c0: expected None for the elman cell, got a tensor"),
    (
        "c0 shape",
        {"cell": "lstm", "c0": torch.ones(3, 6)},
        ValueError,
        r"c0: expected shape \(4, 6\), got \(3, 6\)",
    ),
    ("lengths", {"lengths": torch.ones(3).long()}, ValueError, r"lengths: expected shape \(4\), got \(3,\)"),
    (
        "long",
        {"lengths": torch.tensor([1, 6, 2, 3])},
        ValueError,
        "lengths: expected .* 0 to the 5 steps of x, got 6",
    ),
    (
        "negative",
        {"lengths": torch.tensor([1, -2, 2, 3])},
        ValueError,
        "lengths: expected values from 0 .* got -2",
    ),
    ("real lengths", {"lengths": torch.ones(4)}, TypeError, "lengths: expected integers, got torch.float32"),
    ("list as lengths", {"lengths": [1, 2, 3, 4]}, TypeError, "lengths: expected a tensor, got list"),
    (
        "lengths elsewhere",
        {"lengths": torch.ones(4, device="meta").long()},
        ValueError,
        "lengths: .*cpu.*got meta",
    ),
    (
        "reset",
        {"reset": torch.ones(4, 5).bool()},
        ValueError,
        r"reset: expected shape \(5, 4\), got \(4, 5\)",
    ),
    (
        "reset of ones",
        {"reset": torch.ones(5, 4)},
        TypeError,
        "reset: expected a mask .*bool, got torch.float32",
    ),
    ("list as reset", {"reset": [[True]]}, TypeError, "reset: expected a tensor, got list"),
    (
        "reset elsewhere",
        {"reset": torch.ones(5, 4, device="meta").bool()},
        ValueError,
        "reset: expected x's device cpu, got meta",
    ),
    ("initial", {"initial": torch.ones(6)}, ValueError, "initial: expected None without reset, got a tensor"),
    (
        "initial for each row",
        {"reset": torch.ones(5, 4).bool(), "initial": torch.ones(4, 6)},
        ValueError,
        r"initial: expected shape \(6\), got \(4, 6\)",
    ),
    ("cell", {"cell": "rnn"}, ValueError, "cell: expected one of elman, lstm, gru, got 'rnn'"),
    ("no cell", {"cell": None}, TypeError, "cell: expected one of elman, lstm, gru, got None"),
    (
        "nonlinearity",
        {"nonlinearity": "gelu"},
        ValueError,
        "nonlinearity: expected one of .*modrelu, got 'gelu'",
    ),
    (
        "no nonlinearity",
        {"nonlinearity": None},
        TypeError,
        "nonlinearity: expected one of .*modrelu, got None",
    ),
    ("field", {"field": "Real"}, ValueError, "field: expected real or complex, got 'Real'"),
    (
        "complex gates",
        {"cell": "lstm", "field": "complex"},
        ValueError,
        "field: the lstm cell has real gates",
    ),
    ("reverse", {"reverse": "yes"}, TypeError, "reverse: expected True or False, got 'yes'"),
]


@pytest.mark.parametrize(("changes", "error", "message"), [s[1:] for s in SCAN], ids=[s[0] for s in SCAN])
def test_bad_scan(changes: dict[str, object], error: type[Exception], message: str) -> None:
    given, named = arguments(**changes)
    with pytest.raises(error, match=message):
        scan(*given, **named)
    if isinstance(given[1], Tensor) and not given[1].is_meta:
        with pytest.raises(error, match=message):
            scan(given[0], given[1].clone().requires_grad_(), given[2], **named)


def test_good_arguments_are_good() -> None:
    """So that the errors above come from the changes."""
    for cell in ("elman", "lstm", "gru"):
        given, named = arguments(cell=cell)
        assert scan(*given, **named).h.shape == (4, 6)


@pytest.mark.parametrize(
    ("x", "factors"),
    [
        (torch.ones(4, 1), [torch.ones(2**16, 1)] * 4),  # a result of 2^64 columns
        (torch.ones(4, 1), [torch.ones(2**16, 1)] * 3),
    ],
    ids=["overflow", "memory"],
)
def test_results_that_no_memory_holds(x: Tensor, factors: list[Tensor]) -> None:
    with pytest.raises((RuntimeError, MemoryError, TypeError, ValueError)):
        kru.kron_matmul(x, factors)
    with pytest.raises((RuntimeError, MemoryError, TypeError, ValueError)):
        kru.kron_matmul(x.clone().requires_grad_(), factors)


def test_many_factors() -> None:
    x = torch.randn(3, 2)
    torch.testing.assert_close(kru.kron_matmul(x, [torch.ones(1, 1)] * 500 + [torch.eye(2)]), x)
    torch.testing.assert_close(kru.kron_matmul(x, [torch.eye(2)] + [torch.ones(1, 1)] * 500), x)


def test_operators_called_directly() -> None:
    """With thousands of wrong arguments, in a process of its own: it must live on and refuse most of them."""
    script = Path(__file__).with_name("direct_calls.py")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, (run.returncode, run.stderr[-2000:])
    passed, refused = map(int, run.stdout.split())
    assert refused > 1000
    assert 0 < passed < refused / 4


def test_random_nonsense() -> None:
    """Whatever is passed, an exception or a result comes back."""
    rng = random.Random(0)
    things = [
        None,
        1,
        1.5,
        "x",
        [],
        [1],
        (),
        {},
        object(),
        torch.tensor(2.0),
        torch.ones(3),
        torch.eye(2),
        torch.ones(2, 2, 2),
        torch.ones(2, 2).long(),
        torch.ones(0, 2),
        torch.ones(2, 0, 2),
        [torch.eye(2)],
        [torch.eye(2).double()],
        [torch.ones(2, 2, 2)],
        torch.ones(2, 2, device="meta"),
        torch.ones(2, 2).to_sparse(),
        float("nan"),
        True,
        b"x",
        torch.ones(1, 2).expand(5, 2),
        torch.eye(2) + 1j,
        [torch.eye(2) + 1j],
        torch.nn.Linear(2, 2),
        range(3),
    ]
    optional = ("cell", "nonlinearity", "field", "bias", "recurrent_bias", "h0", "c0", "lengths", "reverse")
    worked = 0
    for x, factors in itertools.product(things, things):
        with suppress(Exception):
            worked += isinstance(kru.kron_matmul(x, factors), Tensor)
    for _ in range(3000):
        named = {name: rng.choice(things) for name in rng.sample(optional, rng.randint(0, 2))}
        with suppress(Exception):
            scan(rng.choice(things), rng.choice(things), rng.choice(things), **named)
    assert worked  # a few combinations make sense
