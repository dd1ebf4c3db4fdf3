"""The recurrence stage by stage against its definition, and against the scan with the dense matrix."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

import kru
from kru.matrices import ChainMatrix, RestrictedUnitaryMatrix, RotationMatrix
from kru.nn.baselines.base import Baseline
from kru.ops import bindings, scan
from kru.ops.chain import chain_scan
from kru.ops.chain.reference import chain_scan_reference
from kru.ops.chain.stages import Fourier, Permutation, Rotations, adjoint, apply, from_program, to_program
from kru.ops.scan.contract import SMALL_INPUT

from .scan_cases import TOLERANCE, assert_equal, threads

STEPS, BATCH = 7, 3
MATRICES = {
    "restricted": lambda **o: RestrictedUnitaryMatrix(5, **o),
    "rotations": lambda **o: RotationMatrix(5, 3, **o),
    "rotations, fft": lambda **o: RotationMatrix(8, arrangement="fft", **o),
}
every_matrix = pytest.mark.parametrize("make", list(MATRICES.values()), ids=list(MATRICES))


def arguments(matrix: ChainMatrix) -> list[Tensor]:
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
def test_values_and_gradients(make, reverse: bool, lengths: Tensor | None, used: str) -> None:
    torch.manual_seed(0)
    matrix = make(dtype=torch.float64)
    part, bias, h0 = arguments(matrix)
    results = chain_scan(part, None, matrix.stages(), bias=bias, h0=h0, lengths=lengths, reverse=reverse)
    plain = chain_scan_reference(part, None, matrix.stages(), bias, h0, lengths, reverse=reverse)
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


FIXED = torch.Generator().manual_seed(0)
INPUTS = {
    "dense": torch.randn(STEPS, BATCH, 3, dtype=torch.float64, generator=FIXED),
    "dense, too wide for the kernel": torch.randn(
        STEPS, BATCH, SMALL_INPUT + 1, dtype=torch.float64, generator=FIXED
    ),
    "dense, not contiguous": torch.randn(BATCH, STEPS, 6, dtype=torch.float64, generator=FIXED).transpose(
        0, 1
    )[..., ::2],
    "symbols": torch.randint(4, (STEPS, BATCH), generator=FIXED),
    "symbols, 32 bits": torch.randint(4, (STEPS, BATCH), dtype=torch.int32, generator=FIXED),
}


@pytest.mark.parametrize("x", list(INPUTS.values()), ids=list(INPUTS))
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 1, 4])])
def test_inputs_and_their_map(x: Tensor, reverse: bool, lengths: Tensor | None) -> None:
    """Multiplied inside the kernel or before it; beyond its end, a sequence may have anything."""
    torch.manual_seed(0)
    matrix = RestrictedUnitaryMatrix(5, dtype=torch.float64)
    _, bias, h0 = arguments(matrix)
    weight = torch.randn(10, x.shape[2] if x.dim() == 3 else 4, dtype=torch.float64, requires_grad=True)
    wanted = [weight, bias, h0, *matrix.parameters()]
    if x.is_floating_point():
        x = x.clone(memory_format=torch.preserve_format).requires_grad_()
        wanted.append(x)
    results = []
    for run in (chain_scan, chain_scan_reference):
        states, last = run(x, weight, matrix.stages(), bias=bias, h0=h0, lengths=lengths, reverse=reverse)
        results.append((states, last, *torch.autograd.grad(states.sin().sum() + last.sum(), wanted)))
    torch.testing.assert_close(*results)
    if lengths is None or not x.is_floating_point() or x.shape[2] > SMALL_INPUT:
        return
    beyond = (torch.arange(STEPS).unsqueeze(1) >= lengths).unsqueeze(2)
    x = x.detach().masked_fill(beyond, torch.nan).requires_grad_()
    states, last = chain_scan(x, weight, matrix.stages(), bias=bias, h0=h0, lengths=lengths, reverse=reverse)
    found = torch.autograd.grad(states.sin().sum() + last.sum(), [*wanted[:-1], x])
    torch.testing.assert_close((states, last, *found), results[0])


def test_derivatives_of_the_input_map_numerically() -> None:
    torch.manual_seed(0)
    matrix = RotationMatrix(4, dtype=torch.float64)
    x = torch.randn(2, BATCH, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return chain_scan(x, weight, matrix.stages())

    assert torch.autograd.gradcheck(run, [x, weight], fast_mode=True)
    assert torch.autograd.gradgradcheck(run, [x, weight], fast_mode=True)


@pytest.mark.parametrize("name", ["dense", "symbols"])
def test_operator_is_registered_as_torch_expects(name: str) -> None:
    if bindings.library is None:
        pytest.skip("kru has no native library here")
    torch.manual_seed(0)
    x, matrix = INPUTS[name], RestrictedUnitaryMatrix(5, dtype=torch.float64)
    weight = torch.randn(10, 3 if x.dim() == 3 else 4, dtype=torch.float64, requires_grad=True)
    _, bias, h0 = arguments(matrix)
    tensors, program = to_program([replace(s) for s in matrix.stages()])
    tensors = [t.detach().requires_grad_(t.is_complex()) for t in tensors]
    torch.library.opcheck(torch.ops.kru.chain_scan, (x, weight, bias, h0, None, tensors, program, False))


@every_matrix
def test_derivatives_numerically(make) -> None:
    torch.manual_seed(0)
    matrix = make(dtype=torch.float64)
    tensors, program = to_program(matrix.stages())
    tensors = [t.detach().requires_grad_(t.is_complex() or t.is_floating_point()) for t in tensors]

    def run(part: Tensor, bias: Tensor, h0: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        return chain_scan(part, None, from_program(others, program), bias=bias, h0=h0)

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
    results = (
        chain_scan(part, None, matrix.stages(), bias=bias),
        scan(part, None, matrix.factors(), bias=bias),
    )
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
    for by_stages in (True, False):
        monkeypatch.setattr(ChainMatrix, "pays", lambda *_, by_stages=by_stages: by_stages)
        output, h = layer(x)
        gradients = torch.autograd.grad(output.square().sum() + h.sum(), list(layer.parameters()))
        outputs.append((output, h, *gradients))
    torch.testing.assert_close(*outputs)


SIZES = [1, 2, 3, 4, 8, 9, 12, 14, 16, 24, 25, 30, 32, 47, 64, 94, 128]
"""Products of 8, 4, 2 and odd primes, in all orders of the passes of a Fourier transform."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("inverse", [False, True])
def test_fourier_transforms_of_any_size(size: int, inverse: bool) -> None:
    """One step without a nonlinearity is the transform itself; more rows than a vector has lanes."""
    torch.manual_seed(0)
    h0 = torch.randn(21, size, dtype=torch.complex128)
    part = torch.zeros(1, 21, 2 * size, dtype=torch.float64)
    _, last = chain_scan(part, None, [Fourier((), inverse=inverse)], h0=torch.cat([h0.real, h0.imag], -1))
    expected = (torch.fft.ifft if inverse else torch.fft.fft)(h0, norm="ortho")
    torch.testing.assert_close(torch.complex(*last.chunk(2, -1)), expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("batch", [1, 8, 21, 25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sizes_rows_and_threads(size: int, batch: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix = RestrictedUnitaryMatrix(size, dtype=dtype)
    part = torch.randn(4, batch, 2 * size, dtype=dtype, requires_grad=True)
    bias = torch.full((size,), -0.1, dtype=dtype, requires_grad=True)
    lengths = torch.randint(5, (batch,))
    wanted = [part, bias, *matrix.parameters()]
    results = []
    for run in (chain_scan, chain_scan_reference):
        with threads(3):
            states, last = run(
                part, None, matrix.stages(), bias=bias, h0=None, lengths=lengths, reverse=False
            )
            results.append((states, last, *torch.autograd.grad(states.sin().sum() + last.sum(), wanted)))
    # Sums over all rows: what rounding may do is proportional to the largest entry.
    found, expected = ({str(k): t.detach() for k, t in enumerate(tensors)} for tensors in results)
    assert_equal(found, expected, TOLERANCE[dtype], (size, batch))


def test_only_what_is_wanted_and_any_memory() -> None:
    """No gradient of the stages, of the input or of the start; views that are not dense, and conjugated numbers."""
    torch.manual_seed(0)
    matrix = RestrictedUnitaryMatrix(6, dtype=torch.float64)
    part = torch.randn(BATCH, STEPS, 24, dtype=torch.float64).transpose(0, 1)[..., ::2]
    bias = torch.full((6,), 0.1, dtype=torch.float64, requires_grad=True)
    tensors, program = to_program([replace(s) for s in matrix.stages()])
    conjugated = [t.detach().conj() for t in tensors]
    assert any(t.is_conj() for t in conjugated)
    stages = from_program(conjugated, program)
    results = []
    for run in (chain_scan, chain_scan_reference):
        states, last = run(part, None, stages, bias=bias, h0=None, lengths=None, reverse=True)
        results.append((states, last, torch.autograd.grad(last.square().sum(), bias)[0]))
    torch.testing.assert_close(*results)


def test_no_steps_no_rows_no_stages() -> None:
    stages = RestrictedUnitaryMatrix(3).stages()
    h0 = torch.randn(2, 6)
    states, last = chain_scan(torch.empty(0, 2, 6), None, stages, h0=h0)
    assert states.shape == (0, 2, 6)
    torch.testing.assert_close(last, h0)
    states, last = chain_scan(torch.empty(4, 0, 6, requires_grad=True), None, stages)
    (gradient,) = torch.autograd.grad(states.sum(), stages[0].tensors)
    assert states.shape == (4, 0, 6)
    assert not gradient.any()
    part = torch.randn(5, 2, 6, requires_grad=True)
    states, _ = chain_scan(part, None, [])
    torch.testing.assert_close(states, part.cumsum(0))
    (gradient,) = torch.autograd.grad(states.sum(), part)
    torch.testing.assert_close(gradient, torch.arange(5.0, 0, -1).view(5, 1, 1).expand(5, 2, 6))
    opcheck(torch.ops.kru.chain_scan, (part, None, None, None, None, [], [], False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 2, 7)}, r"x: expected float32 or float64 \(steps, batch, 2 \* units\)"),
        ({"weight": torch.zeros(5, 6)}, r"weight: expected float32 or float64 \(2 \* units, inputs\)"),
        (
            {"weight": torch.zeros(6, 2)},
            r"x: expected shape, dtype and device \(4, 2, 2\), .*got \(4, 2, 6\)",
        ),
        ({"weight": torch.zeros(6, 6).double()}, r"x: expected .*float64.*, got .*float32"),
        (
            {"x": torch.zeros(4, 2, 1).long(), "weight": torch.zeros(6, 6)},
            r"x: expected symbols \(steps, batch\)",
        ),
        ({"x": torch.full((4, 2), 6), "weight": torch.zeros(6, 6)}, "x: expected symbols from 0 to 5, got 6"),
        ({"bias": torch.zeros(4)}, r"bias: expected shape, dtype and device \(3,\)"),
        ({"h0": torch.zeros(2, 6).double()}, r"h0: expected .*float32.*, got .*float64"),
        ({"lengths": torch.tensor([1, 5])}, "lengths: expected values from 0 to the 4 steps"),
        ({"lengths": torch.tensor([1, 2, 3])}, r"lengths: expected shape \(2\), got \(3,\)"),
        ({"stages": RestrictedUnitaryMatrix(4).stages()}, r"stages\[0\]: expected shape.*\(3,\)"),
        ({"stages": [Permutation((torch.tensor([0, 1, 1]),))]}, r"stages\[0\]: expected each of 0 to 2 once"),
        (
            {"stages": [Rotations((torch.ones(1), torch.zeros(1), torch.ones(1) + 0j), first=2)]},
            r"stages\[0\]: expected pairs of 3 units",
        ),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    good = {"x": torch.zeros(4, 2, 6), "weight": None, "stages": RestrictedUnitaryMatrix(3).stages()}
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        chain_scan(**{**good, **change})


@pytest.mark.parametrize(
    ("layer", "batch", "by_stages"),
    [
        (kru.baselines.RCURNN(1, 128), 8, True),
        (kru.baselines.RCURNN(1, 128), 1, False),
        (kru.baselines.RCURNN(1, 64), 8, False),
        (kru.baselines.EURNN(1, 1024), 1, True),
        (kru.baselines.EURNN(1, 128, capacity=128), 8, False),
        (kru.baselines.EURNN(1, 128, arrangement="fft"), 8, True),
    ],
)
def test_layers_run_as_is_faster(
    layer: Baseline, batch: int, by_stages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bindings.library is None:
        pytest.skip("kru has no native library here")
    dense = []
    factors = ChainMatrix.factors
    monkeypatch.setattr(ChainMatrix, "factors", lambda self: dense.append(self) or factors(self))
    layer(torch.randn(2, batch, 1))
    assert by_stages is not bool(dense)
    matrix = layer.matrix()
    assert isinstance(matrix, ChainMatrix)
    assert matrix.stage_count == len(matrix.stages())


def backward_arguments() -> dict[str, Any]:
    """Of the operator of the gradient, in its order: symbols and short sequences, with one diagonal of 3 units."""
    return {
        "dstates": torch.ones(50, 2, 6),
        "dh": None,
        "x": torch.ones(50, 2).long(),
        "weight": torch.ones(6, 3),
        "bias": None,
        "h0": None,
        "lengths": torch.tensor([1, 2]),
        "states": torch.zeros(50, 2, 6),
        "tensors": [torch.ones(3) + 0j],
        "program": [0],
        "reverse": False,
        "wants": [False, True, False, False, True],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"wants": [True, True, False, False, True]},
            "wants: expected 5 flags, True at most where .False, True",
        ),
        ({"wants": [False, True, True, False, True]}, "wants: expected 5 flags"),
        ({"wants": [False, True]}, "wants: expected 5 flags"),
        ({"states": None}, "states: expected a tensor, got None"),
        ({"states": torch.zeros(5, 2, 6)}, r"states: expected shape, dtype and device \(50, 2, 6\)"),
        ({"lengths": torch.tensor([1, 51])}, "lengths: expected values from 0 to the 50 steps of x, got 51"),
        ({"lengths": torch.ones(2).bool()}, "lengths: expected integers, got torch.bool"),
        ({"program": [-1]}, "program: expected kinds of stages from 0 to 4, got -1"),
        (
            {"program": [4, 0]},
            "program: expected 3 tensors and 2 integers for a stage of kind 4, got 1 and 1",
        ),
        ({"program": []}, "tensors: expected 0 for this program, got 1"),
    ],
)
def test_wrong_arguments_of_the_gradient(change: dict[str, Any], message: str) -> None:
    """In direct_calls.py more of them, in a process that they may crash."""
    good = backward_arguments()
    torch.ops.kru.chain_scan_backward(*good.values())
    with pytest.raises((TypeError, ValueError), match=message):
        torch.ops.kru.chain_scan_backward(*{**good, **change}.values())


@pytest.mark.parametrize("batch", [0, 2])
def test_the_reference_of_nothing(batch: int) -> None:
    """Without rows there is nothing to transform, and the number of rotations can't be told from their total."""
    torch.manual_seed(0)
    matrix = RotationMatrix(8, arrangement="fft", dtype=torch.float64)
    stages = [*matrix.stages(), Fourier((), inverse=False), Fourier((), inverse=True)]
    part = torch.randn(3, batch, 16, dtype=torch.float64)
    found = chain_scan(part, None, stages)
    torch.testing.assert_close(
        found, chain_scan_reference(part, None, stages, None, None, None, reverse=False)
    )
    assert adjoint(stages, torch.zeros(batch, 8, dtype=torch.complex128)).shape == (batch, 8)
