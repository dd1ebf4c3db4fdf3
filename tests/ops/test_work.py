"""Work that is not needed is not done, as a dispatch mode sees it that records the operators' calls."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kru
from kru.ops import bindings
from kru.ops.scan import native
from kru.ops.scan.arguments import DIFFERENTIABLE
from kru.ops.scan.reference import input_part

from .scan_cases import CELLS, INPUTS, ScanCase, run_scan

pytestmark = pytest.mark.skipif(
    bindings.library is None, reason="without native kernels there are no operators"
)


class Spy(TorchDispatchMode):
    """The calls of kru's operators as (name, arguments, result), and the names of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []
        self.others: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.namespace == "kru":
            self.calls.append((func._schema.name.removeprefix("kru::"), args, result))
        else:
            self.others.append(func._schema.name.removeprefix("aten::"))
        return result

    def one(self, name: str) -> tuple[tuple[Any, ...], Any]:
        (found,) = ((args, result) for called, args, result in self.calls if called == name)
        return found


def spied(case: ScanCase, frozen: tuple[str, ...], loss) -> Spy:
    tensors = case.tensors()
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_floating_point() and not name.startswith(frozen or ("-",)):
            tensor.requires_grad_()
    with Spy() as spy:
        loss(*run_scan(case, tensors)).backward()
    return spy


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("cell", [CELLS[1], CELLS[2], *CELLS[-2:]], ids=str)
def test_only_wanted_gradients_are_asked_for(cell: tuple[str, str, str], inputs: str) -> None:
    case = ScanCase(*cell, inputs=inputs, shapes=((2, 2), (3, 3)))
    there = {name for name, t in case.tensors().items() if t is not None and t.is_floating_point()}
    for frozen in (
        (),
        ("factors",),
        ("factors.1",),
        ("x", "h0", "c0"),
        ("weight", "bias"),
        ("recurrent_bias",),
    ):
        args, result = spied(case, frozen, lambda states, *_: states.sum()).one("scan_backward")
        names = (*DIFFERENTIABLE, "factors.0", "factors.1")
        expected = [name in there and not name.startswith(frozen or ("-",)) for name in names]
        assert args[-1] == expected
        assert [bool(gradient.numel()) for gradient in result] == expected


def test_undefined_gradients_are_not_made() -> None:
    case = ScanCase("lstm", "tanh", "real")
    cases = {
        "last h": (lambda states, h, c: h.sum(), (False, True, False)),
        "last c": (lambda states, h, c: c.sum(), (False, False, True)),
        "states": (lambda states, h, c: states.sum(), (True, False, False)),
        "all": (lambda states, h, c: states.sum() + h.sum() + c.sum(), (True, True, True)),
    }
    for name, (loss, expected) in cases.items():
        spy = spied(case, (), loss)
        args, _ = spy.one("scan_backward")
        assert tuple(gradient is not None for gradient in args[:3]) == expected, name
        assert "zeros" not in spy.others, name
        assert "zeros_like" not in spy.others, name


@pytest.mark.parametrize("inputs", ["small", "large", "symbols", "part"])
@pytest.mark.parametrize("cell", CELLS, ids=["-".join(cell) for cell in CELLS])
def test_inference_keeps_no_history(cell: tuple[str, str, str], inputs: str) -> None:
    case = ScanCase(*cell, inputs=inputs)
    tensors = case.tensors()
    with Spy() as spy:
        run_scan(case, tensors)
    args, (*_, reserve, cells) = spy.one("scan")
    assert args[-1] is False
    assert (reserve.numel(), cells.numel()) == (0, 0)
    tensors["factors.0"].requires_grad_()
    with Spy() as spy, torch.no_grad():
        run_scan(case, tensors)
    assert spy.one("scan")[0][-1] is False
    with Spy() as spy:
        run_scan(case, tensors)
    args, (states, _, _, reserve, cells) = spy.one("scan")
    assert args[-1] is True
    gates = {"lstm": 4, "gru": 3}.get(case.cell)
    kept = 0 if gates is None else gates * states.numel()
    if gates is None and case.nonlinearity == "modrelu" and inputs == "large":
        kept = states.numel()
    assert reserve.numel() == kept
    assert cells.numel() == (0 if gates is None else states.numel())


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("cell", [CELLS[1], CELLS[-1]], ids=str)
def test_small_inputs_are_multiplied_in_the_kernel(
    cell: tuple[str, str, str], inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def recorded(*arguments):
        calls.append(arguments)
        return input_part(*arguments)

    monkeypatch.setattr(native, "input_part", recorded)
    spy = spied(ScanCase(*cell, inputs=inputs), (), lambda states, h, _: h.sum())
    assert len(calls) == (1 if inputs in ("large", "part") else 0)
    assert [name for name, _, _ in spy.calls] == ["scan", "scan_backward"]
    assert not {"mm", "bmm", "addmm", "embedding", "linear", "index_add"} & set(spy.others)


def test_product_asks_for_wanted_gradients_only() -> None:
    torch.manual_seed(0)
    for wants in ((True, False, False), (False, True, False), (False, False, True), (True, True, True)):
        tensors = [torch.randn(3, 6), torch.randn(2, 2), torch.randn(3, 3)]
        for tensor, want in zip(tensors, wants, strict=True):
            tensor.requires_grad_(want)
        with Spy() as spy:
            kru.kron_matmul(tensors[0], tensors[1:]).sum().backward()
        args, result = spy.one("kron_matmul_backward")
        assert tuple(args[-1]) == wants
        assert tuple(bool(gradient.numel()) for gradient in result) == wants


def test_no_gradient_no_backward() -> None:
    case = ScanCase()
    tensors = case.tensors()
    with Spy() as spy:
        states, h, _ = run_scan(case, tensors)
    assert not states.requires_grad
    assert not h.requires_grad
    assert [name for name, _, _ in spy.calls] == ["scan"]
