"""The loop with its own backward pass against the definition, one step after the other."""

import pytest
import torch
from torch import Tensor

from kru.ops.euler import euler_scan
from kru.ops.euler.reference import euler_scan_reference

STEPS, BATCH, UNITS = 7, 3, 4
both_kinds = pytest.mark.parametrize("gated", [False, True])


def arguments(gated: bool) -> list[Tensor]:
    torch.manual_seed(0)
    part = torch.randn(STEPS, BATCH, (2 if gated else 1) * UNITS, dtype=torch.float64)
    matrix, h0 = (
        torch.randn(UNITS, UNITS, dtype=torch.float64),
        torch.randn(BATCH, UNITS, dtype=torch.float64),
    )
    return [t.requires_grad_() for t in (part, matrix, h0)]


@both_kinds
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 1, 4])])
@pytest.mark.parametrize("used", ["states", "last", "both"])
def test_values_and_gradients(gated: bool, reverse: bool, lengths: Tensor | None, used: str) -> None:
    part, matrix, h0 = arguments(gated)
    results = euler_scan(part, matrix, step=0.3, gated=gated, h0=h0, lengths=lengths, reverse=reverse)
    expected = euler_scan_reference(part, matrix, h0, lengths, step=0.3, gated=gated, reverse=reverse)
    torch.testing.assert_close(results, expected)
    chosen = {"states": [0], "last": [1], "both": [0, 1]}[used]
    weights = [torch.randn_like(result) for result in results]

    def gradients(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(sum((tensors[i] * weights[i]).sum() for i in chosen), [part, matrix, h0])

    torch.testing.assert_close(gradients(results), gradients(expected))


@both_kinds
def test_derivatives_numerically(gated: bool) -> None:
    def run(part: Tensor, matrix: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return euler_scan(part, matrix, step=0.3, gated=gated, h0=h0)

    inputs = arguments(gated)
    inputs[0] = inputs[0][:3].detach().requires_grad_()
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


def test_starts_from_zero() -> None:
    part, matrix, h0 = arguments(False)
    with torch.no_grad():
        torch.testing.assert_close(
            euler_scan(part, matrix, step=0.3), euler_scan(part, matrix, step=0.3, h0=torch.zeros_like(h0))
        )


def test_errors() -> None:
    part, matrix, h0 = arguments(True)
    with pytest.raises(ValueError, match=r"part: expected shape \(T, B, 4\), got \(7, 3, 8\)"):
        euler_scan(part, matrix, step=0.3)
    with pytest.raises(ValueError, match=r"matrix: expected shape \(N, N\), got \(4, 3\)"):
        euler_scan(part, matrix[:, :3], step=0.3)
    with pytest.raises(ValueError, match=r"h0: expected shape \(3, 4\), got \(2, 4\)"):
        euler_scan(part, matrix, step=0.3, gated=True, h0=h0[:2])
