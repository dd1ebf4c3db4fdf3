"""The recurrence stage by stage against its definition, and against the scan with the dense matrix."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import kru
from kru.matrices import RestrictedUnitaryMatrix, RotationMatrix, StructuredMatrix
from kru.nn.baseline import Baseline
from kru.ops import scan
from kru.ops.staged_scan import staged_scan, staged_scan_reference
from kru.ops.stages import Stage, adjoint, apply

STEPS, BATCH = 7, 3
MATRICES = {
    "restricted": lambda **o: RestrictedUnitaryMatrix(5, **o),
    "rotations": lambda **o: RotationMatrix(5, 3, **o),
    "rotations, fft": lambda **o: RotationMatrix(8, arrangement="fft", **o),
}
every_matrix = pytest.mark.parametrize("make", list(MATRICES.values()), ids=list(MATRICES))


def arguments(matrix: StructuredMatrix) -> list[Tensor]:
    """Input part, modReLU's bias of both signs, and a start."""
    size = matrix.size
    part = torch.randn(STEPS, BATCH, 2 * size, dtype=torch.float64)
    bias = 0.3 * torch.randn(size, dtype=torch.float64)
    h0 = torch.randn(BATCH, 2 * size, dtype=torch.float64)
    return [t.requires_grad_() for t in (part, bias, h0)]


@every_matrix
def test_adjoint_is_the_inverse(make) -> None:
    torch.manual_seed(0)
    stages = make(dtype=torch.float64).stages()
    x = torch.randn(4, 2, stages[-1].tensors[0].shape[0], dtype=torch.complex128)
    torch.testing.assert_close(adjoint(stages, apply(stages, x)), x)
    torch.testing.assert_close(apply(stages, adjoint(stages, x)), x)


@every_matrix
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 1, 4])])
@pytest.mark.parametrize("used", ["states", "last", "both"])
def test_values_and_gradients(make, reverse: bool, lengths: Tensor | None, used: str, monkeypatch) -> None:
    # Several chunks of rows in the stages' gradients.
    monkeypatch.setattr("kru.ops.staged_scan.CHUNK", 40)
    torch.manual_seed(0)
    matrix = make(dtype=torch.float64)
    part, bias, h0 = arguments(matrix)
    results = staged_scan(part, matrix.stages(), bias=bias, h0=h0, lengths=lengths, reverse=reverse)
    plain = staged_scan_reference(part, matrix.stages(), bias, h0, lengths, reverse=reverse)
    dense = scan(part, None, matrix.factors(), bias=bias, h0=h0, lengths=lengths, reverse=reverse)
    chosen = {"states": [0], "last": [1], "both": [0, 1]}[used]
    weights = [torch.randn_like(result) for result in results]

    def gradients(tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        total = sum((tensors[i] * weights[i]).sum() for i in chosen)
        return torch.autograd.grad(total, [part, bias, h0, *matrix.parameters()])

    found = gradients(results)
    for expected in (plain, dense):
        torch.testing.assert_close(results, (expected[0], expected[1]))
        torch.testing.assert_close(found, gradients(expected))


@every_matrix
def test_derivatives_numerically(make) -> None:
    torch.manual_seed(0)
    matrix = make(dtype=torch.float64)
    stages = [
        replace(s, tensors=tuple(t.detach().requires_grad_() for t in s.tensors)) for s in matrix.stages()
    ]
    tensors = [t for stage in stages for t in stage.tensors]

    def run(part: Tensor, bias: Tensor, h0: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        rest = iter(others)
        own: list[Stage] = [replace(s, tensors=tuple(next(rest) for _ in s.tensors)) for s in stages]
        return staged_scan(part, own, bias=bias, h0=h0)

    part, bias, h0 = arguments(matrix)
    inputs = [part[:2].detach().requires_grad_(), bias, h0, *tensors]
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


def test_at_and_near_zero() -> None:
    """Where modReLU has a kink or a floor, the derivatives are those of the scan."""
    matrix = RotationMatrix(4, dtype=torch.float64)
    part = torch.zeros(3, 2, 8, dtype=torch.float64)
    part[0, 0, 1], part[1, 0, 2] = 1e-7, 1e-3
    part.requires_grad_()
    bias = torch.tensor([0.5, 0.0, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    results = staged_scan(part, matrix.stages(), bias=bias), scan(part, None, matrix.factors(), bias=bias)
    torch.testing.assert_close(results[0][0], results[1].states)
    gradients = [torch.autograd.grad(r[0].square().sum(), [part, bias]) for r in results]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", [kru.baselines.RCURNN, kru.baselines.EURNN])
@pytest.mark.parametrize(
    "options", [{"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}]
)
def test_layers_compute_the_same_both_ways(
    kind: type[Baseline], options: dict[str, bool], monkeypatch
) -> None:
    torch.manual_seed(0)
    layer = kind(3, 6, dtype=torch.float64, **options)
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    outputs = []
    for least in (1, 1000):
        for matrix in layer.modules():
            if isinstance(matrix, StructuredMatrix):
                monkeypatch.setattr(matrix, "stages_from", least)
        output, h = layer(x)
        gradients = torch.autograd.grad(output.square().sum() + h.sum(), list(layer.parameters()))
        outputs.append((output, h, *gradients))
    torch.testing.assert_close(*outputs)


def test_the_larger_layers_run_stage_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StructuredMatrix, "factors", lambda self: pytest.fail("the dense matrix was built"))
    for layer in (kru.baselines.RCURNN(1, 1024), kru.baselines.EURNN(1, 1024)):
        layer(torch.randn(2, 1, 1))
