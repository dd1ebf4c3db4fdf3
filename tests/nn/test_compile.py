"""torch.compile without graph breaks, and torch.export."""

import pytest
import torch

import kru

INPUT, HIDDEN, STEPS, BATCH = 3, 4, 3, 2

LAYERS = {
    "kru": lambda: kru.KRU(INPUT, HIDDEN, 2),
    "kru exact": lambda: kru.KRU(INPUT, HIDDEN, constraint="exact"),
    "lstm": lambda: kru.KRULSTM(INPUT, HIDDEN, bidirectional=True),
    "gru": lambda: kru.KRUGRU(INPUT, HIDDEN, batch_first=True),
    "rc urnn": lambda: kru.baselines.RCURNN(INPUT, HIDDEN),
    "fc urnn": lambda: kru.baselines.FCURNN(INPUT, HIDDEN),
    "ornn": lambda: kru.baselines.ORNN(INPUT, HIDDEN),
    "eurnn": lambda: kru.baselines.EURNN(INPUT, HIDDEN),
    "exprnn": lambda: kru.baselines.ExpRNN(INPUT, HIDDEN),
    "antisymmetric": lambda: kru.baselines.AntisymmetricRNN(INPUT, HIDDEN, gated=True),
    "lru": lambda: kru.baselines.LRU(INPUT, HIDDEN),
    "hyper lstm": lambda: kru.baselines.HyperLSTM(INPUT, HIDDEN, hyper_size=4),
}
# Importing the compiler uses a part of torch that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def _compiler_without_memory() -> None:
    """All layers share one `forward`, and the compiler gives up on a function of many variants."""
    torch.compiler.reset()


def check_compiled(layer: torch.nn.Module, x: torch.Tensor, backend: str) -> None:
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    outputs = [module(x)[0] for module in (layer, compiled)]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(y.square().sum(), list(layer.parameters())) for y in outputs]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("build", list(LAYERS.values()), ids=list(LAYERS))
def test_compile_without_graph_breaks(build, symbols: bool) -> None:
    torch.manual_seed(0)
    x = torch.randint(INPUT, (STEPS, BATCH)) if symbols else torch.randn(STEPS, BATCH, INPUT)
    check_compiled(build(), x, "aot_eager")


def test_compile_to_machine_code() -> None:
    torch.manual_seed(0)
    check_compiled(kru.KRU(INPUT, 2, field="real"), torch.randn(2, BATCH, INPUT), "inductor")


def test_compile_under_autocast() -> None:
    layer = kru.KRUGRU(INPUT, HIDDEN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_compiled(layer, torch.randn(STEPS, BATCH, INPUT).bfloat16(), "aot_eager")


@pytest.mark.parametrize("build", list(LAYERS.values()), ids=list(LAYERS))
def test_export(build) -> None:
    torch.manual_seed(0)
    layer = build()
    x = torch.randn(STEPS, BATCH, INPUT)
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x)[0], layer(x)[0])


def test_export_for_any_number_of_rows() -> None:
    """A layer that runs stage by stage or not, by the number of rows, decides for all of them here."""
    torch.manual_seed(0)
    layer = kru.baselines.RCURNN(INPUT, 128)
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(layer, (torch.randn(STEPS, 9, INPUT),), dynamic_shapes=({1: rows},))
    for count in (2, 20):
        x = torch.randn(STEPS, count, INPUT)
        torch.testing.assert_close(exported.module()(x)[0], layer(x)[0], rtol=1e-4, atol=1e-5)


def test_compiled_penalty() -> None:
    layer = kru.KRU(INPUT, HIDDEN)
    compiled = torch.compile(kru.unitary_penalty, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(layer), kru.unitary_penalty(layer))
