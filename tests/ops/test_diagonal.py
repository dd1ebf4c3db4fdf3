"""The diagonal recurrence in log2 T rounds against the definition, one step after the other."""

import pytest
import torch
from torch import Tensor

from kru.ops.diagonal import diagonal_scan
from kru.ops.diagonal.reference import diagonal_scan_reference

BATCH, UNITS = 3, 4


def arguments(steps: int) -> list[Tensor]:
    torch.manual_seed(steps)
    part = torch.randn(BATCH, steps, 2 * UNITS, dtype=torch.float64).transpose(0, 1)  # not contiguous
    decay = 0.6 * torch.randn(2 * UNITS, dtype=torch.float64)
    h0 = torch.randn(BATCH, 2 * UNITS, dtype=torch.float64)
    return [t.detach().requires_grad_() for t in (part, decay, h0)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 9, 33])
def test_values_and_gradients(steps: int, reverse: bool) -> None:
    part, decay, h0 = arguments(steps)
    results = diagonal_scan(part, decay, h0=h0, reverse=reverse)
    expected = diagonal_scan_reference(part, decay, h0, None, reverse=reverse)
    torch.testing.assert_close(results, expected)
    weights = [torch.randn_like(result) for result in results]

    def gradients(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        total = sum((tensor * weight).sum() for tensor, weight in zip(tensors, weights, strict=True))
        return torch.autograd.grad(total, [part, decay, h0])

    torch.testing.assert_close(gradients(results), gradients(expected))


def test_derivatives_numerically() -> None:
    def run(part: Tensor, decay: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return diagonal_scan(part, decay, h0=h0)

    assert torch.autograd.gradcheck(run, arguments(3))


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_are_shorter_sequences(reverse: bool) -> None:
    part, decay, h0 = arguments(6)
    lengths = torch.tensor([6, 1, 4])
    states, last = diagonal_scan(part, decay, h0=h0, lengths=lengths, reverse=reverse)
    for row, length in enumerate(lengths.tolist()):
        own, end = diagonal_scan(part[:length, row : row + 1], decay, h0=h0[row : row + 1], reverse=reverse)
        torch.testing.assert_close(states[:length, row], own[:, 0])
        torch.testing.assert_close(last[row], end[0])
        assert states[length:, row].eq(0).all()


def test_powers_of_stable_numbers_do_not_overflow() -> None:
    part = torch.ones(5000, 1, 2)
    states, _ = diagonal_scan(part, torch.tensor([0.999, 0.0]))
    assert states.isfinite().all()
    assert states[-1, 0, 0].item() == pytest.approx((1 - 0.999**5000) / 0.001, rel=1e-3)


def test_bad_arguments_are_named() -> None:
    part, decay, h0 = arguments(3)
    with pytest.raises(ValueError, match=r"decay: expected shape \(2N,\), got \(3,\)"):
        diagonal_scan(part, decay[:3])
    with pytest.raises(ValueError, match=r"part: expected shape \(T, B, 8\), got \(3, 3, 4\)"):
        diagonal_scan(part[..., :4], decay)
    with pytest.raises(ValueError, match=r"h0: expected shape \(3, 8\), got \(2, 8\)"):
        diagonal_scan(part, decay, h0=h0[:2])
