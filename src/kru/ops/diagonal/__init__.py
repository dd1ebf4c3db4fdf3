"""The linear recurrence with a complex diagonal matrix over time: arguments checked here."""

import torch
from torch import Tensor
from torch.nn import functional

from kru.ops.diagonal.reference import complex_product, diagonal_scan_reference
from kru.ops.scan.checks import check_reset


def diagonal_scan(
    part: Tensor,
    decay: Tensor,
    *,
    h0: Tensor | None = None,
    lengths: Tensor | None = None,
    reset: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """h_t = lambda h_{t-1} + a_t with complex numbers lambda, one for each unit.

    Without lengths and resets, all steps are computed together in about log2 T rounds: after round k, step t holds the
    sum of lambda^{t-s} a_s over its last 2^k steps s, and the next round adds lambda^{2^k} times what the step 2^k
    before it holds. Otherwise the steps are taken one after the other.

    Args:
        part: a_t (T, B, 2N), real parts then imaginary parts.
        decay: lambda (2N,).
        h0: (B, 2N), None for zeros.
        lengths: (B,) steps of each sequence; states beyond are zero, and the last state is the state after a
            sequence's own last step.
        reset: (T, B), True at the first step of each new sequence, whose state before it is zero; see `kru.ops.scan`.
        reverse: run from each sequence's last step to its first. states[t] stays aligned with part[t].

    Returns:
        all states (T, B, 2N) and the last one (B, 2N).
    """
    if decay.dim() != 1 or decay.shape[0] % 2:
        raise ValueError(f"decay: expected shape (2N,), got {tuple(decay.shape)}")
    if part.dim() != 3 or part.shape[2] != decay.shape[0]:
        raise ValueError(f"part: expected shape (T, B, {decay.shape[0]}), got {tuple(part.shape)}")
    if h0 is None:
        h0 = part.new_zeros(part.shape[1:])
    elif h0.shape != part.shape[1:]:
        raise ValueError(f"h0: expected shape {tuple(part.shape[1:])}, got {tuple(h0.shape)}")
    check_reset(reset, len(part), part.shape[1], part.device)
    if lengths is not None or reset is not None:
        return diagonal_scan_reference(part, decay, h0, lengths, reset=reset, reverse=reverse)
    states = part.flip(0) if reverse else part
    states = torch.cat([(states[0] + complex_product(decay, h0)).unsqueeze(0), states[1:]])
    reach, power = 1, decay
    while reach < len(states):
        before = complex_product(power, states[:-reach])
        states = states + functional.pad(before, (0, 0, 0, 0, reach, 0))
        reach, power = 2 * reach, complex_product(power, power)
    return (states.flip(0) if reverse else states), states[-1]
