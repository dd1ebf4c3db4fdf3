"""The definition of the recurrence of a discretised differential equation, in PyTorch."""

import torch
from torch import Tensor

from kru.ops.time_steps import restarts, time_order


def euler_scan_reference(
    part: Tensor,
    matrix: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    *,
    reset: Tensor | None = None,
    step: float,
    gated: bool,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The definition of what `euler_scan` computes, one step after the other, differentiable any number of times."""
    h = h0
    states: list[Tensor] = [torch.empty(0)] * len(part)
    parts = part.unbind(0)  # the gradient of part[t] would fill a tensor as large as part
    anew = restarts(reset, lengths, reverse=reverse)
    for t in time_order(len(part), reverse):
        if anew is not None:
            h = h.masked_fill(anew[t], 0)
        product = h @ matrix.mT
        if gated:
            z, a = parts[t].chunk(2, dim=-1)
            new = h + step * torch.sigmoid(product + z) * torch.tanh(product + a)
        else:
            new = h + step * torch.tanh(product + parts[t])
        if lengths is None:
            h = states[t] = new
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h = torch.where(active, new, h)
            states[t] = torch.where(active, new, torch.zeros_like(new))
    return torch.stack(states), h
