"""The recurrence with a recurrent matrix that is a chain of stages, in PyTorch, with a backward pass of its own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kru.ops.higher_order import differentiable_gradients
from kru.ops.scan_reference import MODRELU_FLOOR, modrelu
from kru.ops.stages import Stage, adjoint, apply
from kru.ops.time_steps import active_steps, time_order

CHUNK = 1 << 22
"""Numbers that are worked on at once where time steps don't depend on each other."""


def staged_scan(
    part: Tensor,
    stages: Sequence[Stage],
    *,
    bias: Tensor | None = None,
    h0: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """h_t = modReLU(W h_{t-1} + a_t) in the complex field, W unitary and a product of stages.

    What `kru.ops.scan` computes with the dense W as its factor, at a cost that grows with that of the stages
    in place of N^2; and, being a loop of PyTorch operations, with a fixed cost for each time step. The backward
    pass takes the gradient through time by W^H alone; the stages' own gradients, of all steps at once, follow.

    Args:
        part: a_t (T, B, 2N), real parts then imaginary parts.
        stages: what W is made of, the first one applied first.
        bias: modReLU's b (N,), None for zeros.
        h0: (B, 2N), None for zeros.
        lengths, reverse: see `kru.ops.scan`.

    Returns:
        all states (T, B, 2N) and the last one (B, 2N).
    """
    size = part.shape[2] // 2
    if bias is None:
        bias = part.new_zeros(size)
    if h0 is None:
        h0 = part.new_zeros(part.shape[1], 2 * size)
    tensors = [tensor for stage in stages for tensor in stage.tensors]
    states, last = _StagedScan.apply(part, bias, h0, lengths, reverse, stages, *tensors)  # type: ignore[no-untyped-call]
    return states, last


def staged_scan_reference(
    part: Tensor, stages: Sequence[Stage], bias: Tensor, h0: Tensor, lengths: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The definition of what `staged_scan` computes, one step after the other."""
    h = h0
    states: list[Tensor] = [torch.empty(0)] * len(part)
    for t in time_order(len(part), reverse):
        new = modrelu(_real(apply(stages, _complex(h))) + part[t], bias, is_complex=True)
        if lengths is None:
            h = states[t] = new
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h = torch.where(active, new, h)
            states[t] = torch.where(active, new, torch.zeros_like(new))
    return torch.stack(states), h


class _StagedScan(torch.autograd.Function):
    """Keeps the states before each step and the arguments of modReLU, as complex numbers."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Tensor,
        bias: Tensor,
        h0: Tensor,
        lengths: Tensor | None,
        reverse: bool,
        stages: Sequence[Stage],
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        own = _rebuilt(stages, tensors)
        z = _complex(part)
        before, states = torch.empty_like(z), torch.empty_like(z)
        active = active_steps(lengths, part)
        h = _complex(h0)
        for t in time_order(len(part), reverse):
            before[t] = h
            z[t] += apply(own, h)
            gain, _ = _gain(z[t], bias)
            new = torch.mul(z[t], gain, out=states[t])
            h = new if active is None else torch.where(active[t] > 0, new, h)
        if active is not None:
            states *= active
        ctx.save_for_backward(part, bias, h0, lengths, before, z, *tensors)
        ctx.reverse, ctx.stages = reverse, stages
        ctx.set_materialize_grads(False)
        return _real(states), _real(h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        part, bias, h0, lengths, before, z, *tensors = ctx.saved_tensors
        stages = _rebuilt(ctx.stages, tensors)
        if torch.is_grad_enabled():
            # The gradient is itself to be differentiated: take it through the reference, which can be.
            results = staged_scan_reference(part, stages, bias, h0, lengths, reverse=ctx.reverse)
            wants = [*ctx.needs_input_grad[:3], *ctx.needs_input_grad[6:]]
            found = differentiable_gradients(results, gradients, [part, bias, h0, *tensors], wants)
            return *found[:3], None, None, None, *found[3:]
        dstates, dlast = (None if g is None else _complex(g) for g in gradients)
        active = active_steps(lengths, part)
        dz = torch.empty_like(z)
        dbias = torch.zeros_like(bias)
        dh = _complex(torch.zeros_like(h0)) if dlast is None else dlast
        for t in time_order(len(part), not ctx.reverse):
            g = dh
            if dstates is not None:
                g = g + (dstates[t] if active is None else dstates[t] * active[t])
            arrived = g if active is None else g * active[t]
            along = (torch.view_as_real(z[t]) * torch.view_as_real(arrived)).sum(-1)
            gain, size = _gain(z[t], bias)
            floored = size.clamp(min=MODRELU_FLOOR)
            live = size + bias >= 0
            # d gain / d size, over size: -b / size^3 above the floor, 1 / (floor size) below.
            change = torch.where(
                size < MODRELU_FLOOR, 1 / (MODRELU_FLOOR * size), -bias / (floored * floored * floored)
            )
            change = torch.where(live & (size > 0), change, 0)
            torch.add(gain * arrived, z[t] * (change * along), out=dz[t])
            dbias += torch.where(live, along / floored, 0).sum(0)
            dh = adjoint(stages, dz[t])
            if active is not None:
                dh = dh + g * (1 - active[t])
        dtensors = _stage_gradients(stages, before.flatten(0, 1), dz.flatten(0, 1))
        return _real(dz), dbias, _real(dh), None, None, None, *dtensors


def _gain(z: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """What modReLU multiplies z by, and |z|. At z = 0 it is taken as 1 for b >= 0, which is the derivative there."""
    size = z.abs()
    gain = torch.clamp(size + bias, min=0) / torch.clamp(size, min=MODRELU_FLOOR)
    return torch.where(size == 0, (bias >= 0).to(size.dtype), gain), size


def _stage_gradients(stages: Sequence[Stage], x: Tensor, dy: Tensor) -> list[Tensor]:
    """The gradients of the stages' tensors from rows x of W's input and dy of the gradient at its output."""
    tensors = [t.detach().requires_grad_() for stage in stages for t in stage.tensors]
    own = _rebuilt(stages, tensors)
    totals = [torch.zeros_like(tensor) for tensor in tensors]
    rows = max(1, CHUNK // x.shape[1])
    for first in range(0, len(x), rows):
        with torch.enable_grad():
            y = apply(own, x[first : first + rows])
        for total, part in zip(
            totals, torch.autograd.grad(y, tensors, dy[first : first + rows]), strict=True
        ):
            total += part
    return totals


def _rebuilt(stages: Sequence[Stage], tensors: Sequence[Tensor]) -> list[Stage]:
    """The stages with other tensors."""
    rest = iter(tensors)
    return [replace(stage, tensors=tuple(next(rest) for _ in stage.tensors)) for stage in stages]


def _complex(x: Tensor) -> Tensor:
    return torch.complex(*x.chunk(2, dim=-1))


def _real(x: Tensor) -> Tensor:
    return torch.cat([x.real, x.imag], dim=-1)
