"""memory="lean" gives what memory="full" gives, in values and gradients, and takes the memory that it promises."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kru
from kru.ops import bindings, scan
from kru.ops.scan import lean
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.lean import steps_between

from .scan_cases import CELLS, ScanCase, split

pytestmark = pytest.mark.skipif(bindings.library is None, reason="without native kernels everything is kept")
SHAPES = {"2x2": ((2, 2),) * 4, "3 and 5": ((3, 3), (5, 5)), "dense": ((9, 9),)}


def results(case: ScanCase, memory: str, need_states: bool) -> dict[str, Tensor]:
    """Results and gradients by name. The loss weighs all values of what is returned differently."""
    tensors = case.tensors()
    for tensor in tensors.values():
        if tensor is not None and tensor.is_floating_point():
            tensor.requires_grad_()
    named, factors = split(tensors)
    out = scan(
        named.pop("x"),
        named.pop("weight"),
        factors,
        **named,
        **case.settings,
        memory=memory,
        need_states=need_states,
    )
    assert (out.states is not None) == need_states
    there = {name: t for name, t in out._asdict().items() if t is not None}
    loss = sum((t * torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view_as(t)).sum() for t in there.values())
    leaves = {name: t for name, t in tensors.items() if t is not None and t.requires_grad}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return there | {f"d{name}": g for name, g in zip(leaves, found, strict=True) if g is not None}


def check_same(case: ScanCase) -> None:
    for need_states in (True, False):
        expected, got = (results(case, memory, need_states) for memory in ("full", "lean"))
        assert expected.keys() == got.keys()
        again = results(case, "lean", need_states)
        for name, tensor in expected.items():
            # The backward pass may take another form of the matrix than the forward pass: equal up to rounding.
            torch.testing.assert_close(
                got[name], tensor, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
            )
            assert torch.equal(got[name], again[name]), name


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(cell))
def test_same_values_and_gradients(cell, shapes):
    case = ScanCase(*cell, shapes=shapes, steps=21, batch=3, dtype=torch.float64)
    check_same(case)
    check_same(replace(case, lengths="unsorted", reverse=True, reset=True, inputs="symbols", seed=1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", [CELLS[0], CELLS[3], *CELLS[-2:]], ids=lambda cell: "-".join(cell))
def test_wide_inputs_are_taken_in_pieces(cell, reverse, monkeypatch):
    """The input part is made for one piece at a time; lengths and resets hold across pieces."""
    monkeypatch.setattr(lean, "PART", 1)
    case = ScanCase(*cell, inputs="large", steps=40, batch=5, dtype=torch.float64, reverse=reverse)
    check_same(case)
    for seed in (1, 2):
        check_same(
            replace(
                case, lengths="unsorted", reset=True, initial=seed == 1, seed=seed, shapes=((3, 3), (2, 2))
            )
        )


def test_leak_and_sums():
    check_same(ScanCase(steps=18, leak=True, rank=2, dtype=torch.float64))
    check_same(ScanCase("elman", "tanh", "real", steps=18, leak=True, inputs="part", dtype=torch.float64))


def test_what_is_kept_for_the_backward_pass():
    steps, batch, units = 1000, 4, 32
    k = steps_between(steps, 2 * units, 4)
    assert k == 32
    layer = kru.KRU(2, units)
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    x = torch.randn(steps, batch, 2)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output, h = layer(x, need_output=False, memory="lean")
    assert output is None
    own = {p.data_ptr() for p in layer.parameters()} | {x.data_ptr()}
    values = sum(t.numel() for t in kept if t.data_ptr() not in own and t.is_floating_point())
    # ceil(T / k) states of each row; the rest are the recurrent factors as the kernel reads them.
    expected = -(-steps // k) * batch * 2 * units
    assert expected <= values <= expected + 3 * sum(p.numel() for p in layer.parameters())
    h.sum().backward()


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a process"
)
def test_peak_memory_of_a_long_sequence():
    """T = 30,000 trains in a fraction of the memory of its states."""
    program = """
import sys, torch, kru
sys.path.insert(0, sys.argv[1])
from peak_memory import status
from pathlib import Path
torch.set_num_threads(1)
for layer in (kru.KRU(1, 64), kru.KRULSTM(1, 64), kru.KRUGRU(1, 64)):
    def step(T, memory):
        _, h = layer(torch.randn(T, 4, 1), need_output=memory == "full", memory=memory)
        (h if isinstance(h, torch.Tensor) else h[0]).sum().backward()
    step(100, "lean")
    for memory in ("lean", "full"):
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        step(30_000, memory)
        print(status("VmHWM") - before)
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peaks = [int(line) for line in done.stdout.split()]
    for lean_peak, full_peak in zip(peaks[::2], peaks[1::2], strict=True):
        # The input itself is 0.5 MB; the states of KRU are 61 MB.
        assert full_peak > 25e6
        assert lean_peak < full_peak / 8


def test_layers_without_output():
    torch.manual_seed(0)
    x = torch.randn(30, 3, 4)
    for layer in (
        kru.KRU(4, 8, num_layers=2, bidirectional=True),
        kru.KRULSTM(4, 8),
        kru.baselines.RCURNN(4, 8),
    ):
        output, state = layer(x)
        none, lean_state = layer(x, need_output=False, memory="lean")
        assert output is not None
        assert none is None
        torch.testing.assert_close(lean_state, state)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, need_output=False)[1], state)


@pytest.mark.parametrize("cell", [CELLS[0], *CELLS[-2:]], ids=lambda cell: "-".join(cell))
@pytest.mark.parametrize("need_states", [False, True])
def test_opcheck(cell, need_states):
    case = ScanCase(*cell, steps=7, lengths="unsorted", reset=True)
    named, factors = split(case.tensors())
    for tensor in (*named.values(), *factors):
        if tensor is not None and tensor.is_floating_point():
            tensor.requires_grad_()
    arguments = ScanArguments(
        factors=factors,
        **named,
        cell=case.cell,
        nonlinearity=case.nonlinearity,
        is_complex=case.field == "complex",
        every=3,
        need_states=need_states,
    )
    torch.library.opcheck(torch.ops.kru.scan, (*arguments, True))


def test_compiled():
    layer = kru.KRU(2, 8)
    x = torch.randn(40, 3, 2)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def last(x: Tensor) -> Tensor:
        return layer(x, need_output=False, memory="lean")[1]

    torch.testing.assert_close(last(x), layer(x)[1])


def test_bad_settings():
    layer = kru.KRU(2, 4)
    with pytest.raises(ValueError, match="memory: expected full or lean, got 'small'"):
        layer(torch.randn(3, 2, 2), memory="small")
    with pytest.raises(TypeError, match="need_output: expected a bool, got int"):
        layer(torch.randn(3, 2, 2), need_output=1)
