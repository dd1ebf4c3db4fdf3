"""The definition of the diagonal linear recurrence, in PyTorch."""

import torch
from torch import Tensor

from kru.ops.time_steps import restarts, time_order


def diagonal_scan_reference(
    part: Tensor,
    decay: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    *,
    reset: Tensor | None = None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """What `diagonal_scan` computes, one step after the other."""
    h = h0
    zeros = torch.zeros_like(h0)
    states: list[Tensor] = [zeros] * len(part)
    parts = part.unbind(0)  # the gradient of part[t] would fill a tensor as large as part
    anew = restarts(reset, lengths, reverse=reverse)
    for t in time_order(len(part), reverse):
        if anew is not None:
            h = h.masked_fill(anew[t], 0)
        new = complex_product(decay, h) + parts[t]
        if lengths is None:
            h = states[t] = new
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h = torch.where(active, new, h)
            states[t] = torch.where(active, new, zeros)
    return torch.stack(states), h


def complex_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers (..., 2N), real parts then imaginary parts."""
    a_re, a_im = a.chunk(2, dim=-1)
    b_re, b_im = b.chunk(2, dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
