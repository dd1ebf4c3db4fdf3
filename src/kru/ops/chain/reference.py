"""The definition of the recurrence with a chain of stages, in PyTorch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.ops.chain.stages import Stage, apply
from kru.ops.scan.cells import modrelu
from kru.ops.scan.reference import input_part
from kru.ops.time_steps import time_order


def chain_scan_reference(
    x: Tensor,
    weight: Tensor | None,
    stages: Sequence[Stage],
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    *,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """What `kru.ops.chain` computes, one step after the other."""
    part = input_part(x, weight, None)
    size = part.shape[2] // 2
    if bias is None:
        bias = part.new_zeros(size)
    h = part.new_zeros(part.shape[1], 2 * size) if h0 is None else h0
    states: list[Tensor] = [torch.empty(0)] * len(part)
    parts = part.unbind(0)  # the gradient of part[t] would fill a tensor as large as part
    for t in time_order(len(part), reverse):
        turned = apply(stages, torch.complex(*h.chunk(2, dim=-1)))
        new = modrelu(torch.cat([turned.real, turned.imag], dim=-1) + parts[t], bias, is_complex=True)
        if lengths is None:
            h = states[t] = new
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h = torch.where(active, new, h)
            states[t] = torch.where(active, new, torch.zeros_like(new))
    return torch.stack(states) if states else torch.empty_like(part), h
