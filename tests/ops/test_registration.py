"""The operators as torch sees them: opcheck, compile, export, data parallel training, dispatch modes."""

from pathlib import Path

import pytest
import torch
from torch.library import opcheck

import kru
from kru.ops import scan
from kru.ops.scan.arguments import DIFFERENTIABLE, TENSORS, ScanArguments

from .scan_cases import CELLS, ScanCase, split

# Importing the compiler uses a part of torch that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
CELL_IDS = ["-".join(cell) for cell in CELLS]


@pytest.fixture(autouse=True)
def _compiler_without_memory() -> None:
    torch.compiler.reset()


def scan_arguments(case: ScanCase, requires_grad: bool, keep: bool) -> list[object]:
    """In the operator's order."""
    tensors = case.tensors()
    for t in tensors.values():
        if t is not None and t.is_floating_point():
            t.requires_grad_(requires_grad)
    named, factors = split(tensors)
    optional = [named[name] for name in ScanArguments._fields[3:TENSORS]]
    settings = [case.cell, case.nonlinearity, case.field == "complex", case.reverse, 0, True]
    return [named["x"], named["weight"], factors, *optional, *settings, keep]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_opcheck_of_the_product(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, factors = (
        torch.randn(3, 6, dtype=dtype),
        [torch.randn(2, 2, dtype=dtype), torch.randn(1, 3, dtype=dtype)],
    )
    dy = torch.randn(3, 2, dtype=dtype)
    opcheck(torch.ops.kru.kron_matmul_backward, (dy, x, factors, [True, False, True]))
    leaves = [t.requires_grad_() for t in factors]
    opcheck(torch.ops.kru.kron_matmul, (x.requires_grad_(), leaves))


@pytest.mark.parametrize("lengths", ["equal", "unsorted"])
@pytest.mark.parametrize("inputs", ["small", "large"])
@pytest.mark.parametrize(
    "cell", [("elman", "modrelu", "complex"), ("elman", "tanh", "real"), *CELLS[-2:]], ids=str
)
def test_opcheck_of_the_scan(cell: tuple[str, str, str], inputs: str, lengths: str) -> None:
    leak = cell[1:] == ("tanh", "real") and cell[0] == "elman"
    case = ScanCase(
        *cell,
        inputs=inputs,
        shapes=((2, 2), (3, 3)),
        steps=2,
        batch=2,
        lengths=lengths,
        leak=leak,
        reset=leak,
    )
    cheap = ("test_schema", "test_faketensor")
    utils = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    opcheck(torch.ops.kru.scan, scan_arguments(case, True, True), test_utils=utils)
    opcheck(torch.ops.kru.scan, scan_arguments(case, False, False), test_utils=cheap)
    *arguments, keep = scan_arguments(case, False, True)
    states, h, c, reserve, cells = torch.ops.kru.scan(*arguments, keep)
    named = dict(zip(ScanArguments._fields, arguments, strict=False))
    present = [*[named[name] for name in DIFFERENTIABLE], *named["factors"]]
    wants = [t is not None for t in present]
    dc = torch.randn_like(c) if cell[0] == "lstm" else None
    for dstates in (None, torch.randn_like(states)):
        backward = (
            dstates,
            torch.randn_like(h),
            dc,
            *arguments[:TENSORS],
            states,
            reserve,
            cells,
            *arguments[TENSORS:],
            wants,
        )
        opcheck(torch.ops.kru.scan_backward, backward, test_utils=cheap)


@pytest.mark.parametrize("inputs", ["part", "small", "large", "symbols"])
@pytest.mark.parametrize("cell", CELLS[-2:], ids=str)
def test_nothing_kept_is_uninitialised(cell: tuple[str, str, str], inputs: str) -> None:
    """Gates and cells after a sequence's end are zero, though fresh memory is full of NaN."""
    case = ScanCase(*cell, inputs=inputs, shapes=((2, 2), (3, 3)), steps=5, batch=4, lengths="unsorted")
    arguments = scan_arguments(case, False, True)
    lengths = arguments[7]
    assert isinstance(lengths, torch.Tensor)
    torch.use_deterministic_algorithms(True)
    try:
        *_, reserve, cells = torch.ops.kru.scan(*arguments)
    finally:
        torch.use_deterministic_algorithms(False)
    after = torch.arange(5).unsqueeze(1) >= lengths
    assert after.any()
    for kept in (reserve, cells):
        assert kept.isfinite().all()
        assert not kept[after].any()
        assert kept[~after].any()


class Model(torch.nn.Module):
    """Both operations, one after the other."""

    def __init__(self, case: ScanCase) -> None:
        super().__init__()
        named, factors = split(case.tensors())
        self.case = case
        self.weight = torch.nn.Parameter(named["weight"])
        self.bias = torch.nn.Parameter(named["bias"])
        self.factors = torch.nn.ParameterList(factors)
        self.read = torch.nn.ParameterList([torch.randn(2, case.state // 2), torch.randn(2, 2)])

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        result = scan(
            x, self.weight, list(self.factors), bias=self.bias, lengths=lengths, **self.case.settings
        )
        return kru.kron_matmul(result.states, list(self.read)) + result.h.sum()


def model_and_input(cell: tuple[str, str, str], inputs: str) -> tuple[Model, torch.Tensor]:
    case = ScanCase(*cell, inputs=inputs, shapes=((2, 2), (2, 2)), steps=3, batch=2)
    model = Model(case)
    return model, case.tensors()["x"]


def check_compiled(model: Model, arguments: tuple[torch.Tensor, ...], backend: str, **options) -> None:
    compiled = torch.compile(model, fullgraph=True, backend=backend, **options)
    outputs = [module(*arguments) for module in (model, compiled)]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in outputs]
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*arguments), outputs[0].detach())


@pytest.mark.parametrize("inputs", ["small", "symbols"])
@pytest.mark.parametrize("cell", [("elman", "modrelu", "complex"), *CELLS[-2:]], ids=str)
def test_compile_without_graph_breaks(cell: tuple[str, str, str], inputs: str) -> None:
    model, x = model_and_input(cell, inputs)
    check_compiled(model, (x, torch.tensor([3, 1])), "aot_eager")


def test_compile_with_sizes_that_change() -> None:
    model, x = model_and_input(("elman", "modrelu", "complex"), "large")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for longer in (x, torch.cat([x, x]), torch.cat([x, x, x], dim=1)):
        torch.testing.assert_close(compiled(longer), model(longer))


def test_compile_to_machine_code() -> None:
    model, x = model_and_input(("elman", "tanh", "real"), "large")
    check_compiled(model, (x,), "inductor")


@pytest.mark.parametrize("cell", [("elman", "modrelu", "complex"), CELLS[-2]], ids=str)
def test_export(cell: tuple[str, str, str]) -> None:
    model, x = model_and_input(cell, "small")
    steps = torch.export.Dim("steps", min=2, max=100)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: steps},))
    longer = torch.cat([x, x])
    torch.testing.assert_close(exported.module()(longer), model(longer))
    names = {str(node.target) for node in exported.graph.nodes}
    assert {"kru.scan.default", "kru.kron_matmul.default"} <= names


def test_compiled_errors_are_the_same() -> None:
    compiled = torch.compile(kru.kron_matmul, backend="aot_eager")
    with pytest.raises(Exception, match="expected a last dimension of 2 = 2"):
        compiled(torch.randn(3, 3), [torch.randn(2, 2)])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_data_parallel_training(tmp_path: Path) -> None:
    """One process here; two of them train layers in tests/nn."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, x = model_and_input(CELLS[-1], "small")
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        parallel(x).square().sum().backward()
        got = [p.grad for p in model.parameters()]
        expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        torch.testing.assert_close(got, list(expected))
    finally:
        torch.distributed.destroy_process_group()


def test_fake_tensors_have_the_results_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for cell in (CELLS[1], *CELLS[-2:]):
        for inputs, keep in (
            ("small", True),
            ("large", True),
            ("large", False),
            ("symbols", True),
            ("part", True),
        ):
            case = ScanCase(*cell, inputs=inputs, shapes=((2, 3), (3, 2)))
            arguments = scan_arguments(case, False, keep)
            real = torch.ops.kru.scan(*arguments)
            with FakeTensorMode() as mode:
                faked = [
                    [mode.from_tensor(t) for t in a] if isinstance(a, list)
                    else mode.from_tensor(a) if isinstance(a, torch.Tensor) else a
                    for a in arguments
                ]  # fmt: skip
                fake = torch.ops.kru.scan(*faked)
            assert [t.shape for t in fake] == [t.shape for t in real], case
            assert [t.dtype for t in fake] == [t.dtype for t in real], case
            assert [t.stride() for t in fake] == [t.stride() for t in real], case


@pytest.mark.parametrize("inputs", ["small", "large", "part"])
@pytest.mark.parametrize("cell", [CELLS[0], CELLS[2], *CELLS[-2:]], ids=str)
def test_autocast_keeps_the_precision(cell: tuple[str, str, str], inputs: str) -> None:
    """The kernels read float32 where autocast would have made it something else."""
    case = ScanCase(*cell, inputs=inputs)
    arguments = scan_arguments(case, True, True)
    leaves = [a for a in (*arguments[:2], *arguments[2], *arguments[3:7]) if a is not None]
    plain = torch.ops.kru.scan(*arguments)[0]
    expected = torch.autograd.grad(plain.sum(), leaves, allow_unused=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = torch.ops.kru.scan(*arguments)[0]
        gradients = torch.autograd.grad(states.sum(), leaves, allow_unused=True)
    assert torch.equal(states, plain)
    torch.testing.assert_close(gradients, expected)
