"""Tensors without memory of their own: computed or refused, in processes that may crash without harm."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kru
from kru.ops import bindings

pytestmark = pytest.mark.skipif(bindings.library is None, reason="there are no native kernels")
needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")

SETUP = """
import torch, kru
from kru.ops import scan
from torch._subclasses.fake_tensor import FakeTensorMode
def freed(t): t.untyped_storage().resize_(0); return t
def short(t): t.untyped_storage().resize_(4); return t
def fake(t): return FakeTensorMode().from_tensor(t)
class Wrapper(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
    @staticmethod
    def __new__(cls, t): return torch.Tensor._make_wrapper_subclass(cls, t.shape, dtype=t.dtype)
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): raise RuntimeError("refused")
def factors(count, *shape): return [torch.randn(*shape) for _ in range(count)]
"""
REFUSED = [
    *[
        (f"kru.kron_matmul(torch.ones(3, {2**count}), [{kind}(f) for f in factors({count}, 2, 2)])", error)
        for count in (2, 5)
        for kind, error in (
            ("freed", "ValueError: factors[0]: expected"),
            ("short", "ValueError: factors[0]: expected"),
            ("fake", "Error"),
            ("Wrapper", "RuntimeError: refused"),
        )
    ],
    ("kru.kron_matmul(freed(torch.ones(3, 4)), factors(2, 2, 2))", "ValueError: x: expected"),
    ("kru.kron_matmul(short(torch.ones(3, 4)), factors(2, 2, 2))", "ValueError: x: expected"),
    ("kru.kron_matmul(short(torch.ones(3, 4)[1:]), factors(2, 2, 2))", "ValueError: x: expected"),
    (
        "with torch.autograd.forward_ad.dual_level(): kru.kron_matmul(freed(torch.ones(99, 4)), factors(2, 2, 2))",
        "ValueError: x: expected",
    ),
    *[
        (f"scan({x}, {weight}, {matrices}, cell='lstm', field='real', h0={h0})", f"ValueError: {name}: expected")
        for name, x, weight, matrices, h0 in (
            ("x", "freed(torch.ones(5, 2, 16))", "None", "factors(2, 4, 2, 2)", "None"),
            ("weight", "torch.ones(5, 2, 3)", "freed(torch.ones(16, 3))", "factors(2, 4, 2, 2)", "None"),
            ("factors[1]", "torch.ones(5, 2, 16)", "None", "[torch.ones(4, 2, 2), freed(torch.ones(4, 2, 2))]", "None"),
            ("h0", "torch.ones(5, 2, 16)", "None", "factors(2, 4, 2, 2)", "short(torch.ones(2, 4))"),
        )
    ],
]  # fmt: skip


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SETUP + code], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("code", "message"), REFUSED, ids=[code for code, _ in REFUSED])
def test_refused(code: str, message: str) -> None:
    done = run(code)
    assert done.returncode == 1, (done.returncode, done.stderr[-2000:])
    assert message in done.stderr


COMPUTED = """
torch.manual_seed(0)
x, matrices = torch.randn(3, 6), [torch.randn(4, 2), torch.randn(5, 3)]
layers = [kru.KroneckerLinear(6, 20), kru.KRU(6, 4), kru.KRULSTM(6, 4)]
inputs = [x, x.unsqueeze(1), x.unsqueeze(1)]
def results():
    made = [layer(given) for layer, given in zip(layers, inputs)]
    found = [kru.kron_matmul(x, matrices), made[0], made[1][0], made[2][0]]
    gradients = torch.autograd.grad(sum(y.square().sum() for y in found if y.requires_grad), layers[1].parameters())
    with torch.no_grad():
        return [*found, *gradients, layers[0](x)]
expected = results()
with {mode}:
    got = results()
for a, b in zip(expected, got, strict=True):
    assert b.device.type == "cpu"
    torch.testing.assert_close(a, b, rtol=0, atol=0)
"""


def test_results_under_another_default_device() -> None:
    """The same numbers, on the CPU where the inputs are."""
    done = run(COMPUTED.format(mode="torch.device('meta')"))
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


def test_results_under_a_mode_that_moves_fresh_tensors() -> None:
    mode = """
from torch.overrides import TorchFunctionMode
class ToMeta(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made.to("meta") if func in (torch.empty, torch.empty_like, torch.stack) else made
"""
    done = run(mode + COMPUTED.format(mode="ToMeta()"))
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


ZEROS = """
zero = torch._efficientzerotensor
for count in (2, 5):
    x, matrices = torch.randn(3, 2**count), factors(count, 2, 2)
    for one in (zero(x.shape), zero(()).expand(x.shape)):
        assert not kru.kron_matmul(one, matrices).any()
    for place in range(count):
        matrices_ = [zero((2, 2)) if f == place else matrix for f, matrix in enumerate(matrices)]
        assert not kru.kron_matmul(x, matrices_).any()
x, weight, matrices, h0 = torch.randn(5, 2, 3), torch.randn(4, 3), factors(2, 2, 2), torch.randn(2, 4)
def both(name, tensor):
    given = {"x": x, "weight": weight, "h0": h0, "bias": torch.ones(4)}
    runs = []
    for t in (tensor, torch.zeros(tensor.shape)):
        runs.append(scan(factors=matrices, field="real", nonlinearity="tanh", **{**given, name: t}))
    torch.testing.assert_close(runs[0].states, runs[1].states, rtol=0, atol=0)
for name, shape in {"x": (5, 2, 3), "weight": (4, 3), "h0": (2, 4), "bias": (4,)}.items():
    both(name, zero(shape))
"""


def test_zero_tensors() -> None:
    done = run(ZEROS)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


@needs_fork
def test_kinds_of_tensors_by_operators() -> None:
    """Thousands of calls: some give a result, some an exception, and none ends its process."""
    script = Path(__file__).with_name("odd_tensors.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    outcomes = json.loads(done.stdout)
    assert [(call, outcome) for call, outcome in outcomes.items() if outcome.startswith("SIG")] == []
    assert len(outcomes) > 3500
    assert sum(outcome == "ok" for outcome in outcomes.values()) > 500


def test_views_inside_their_storage_are_in_memory() -> None:
    whole = torch.randn(4, 6)
    views: list[Tensor] = [
        whole,
        whole[1:, 2:],
        whole.t(),
        whole[3:, 5:],
        whole[:, :0],
        whole[:1].expand(9, 6),
    ]
    assert all(bindings.in_memory(view) for view in views)
    start, rest = whole[:3], whole[1:]
    whole.untyped_storage().resize_(whole.nbytes - 1)
    assert [bindings.in_memory(view) for view in views] == [False, False, False, False, True, True]
    assert bindings.contiguous_address(start) == whole.data_ptr()
    assert bindings.contiguous_address(rest) == 0


def test_factors_that_are_views() -> None:
    """Slices of one tensor, with offsets, and transposed factors."""
    stacked = torch.randn(9, 2, 2)
    x = torch.randn(3, 512)
    for factors in (list(stacked), [matrix.t() for matrix in stacked]):
        expected = dense_product(x, factors)
        torch.testing.assert_close(kru.kron_matmul(x, factors), expected, rtol=1e-4, atol=1e-4)


def dense_product(x: Tensor, factors: list[Tensor]) -> Tensor:
    dense = factors[0]
    for factor in factors[1:]:
        dense = torch.kron(dense.contiguous(), factor.contiguous())
    return x @ dense.T
