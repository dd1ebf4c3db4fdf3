"""The recurrence of a discretised differential equation over time, with a backward pass of its own."""

from typing import Any

import torch
from torch import Tensor

from kru.ops.higher_order import differentiable_gradients
from kru.ops.time_steps import active_steps, time_order


def euler_scan(
    part: Tensor,
    matrix: Tensor,
    *,
    step: float,
    gated: bool = False,
    h0: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Forward Euler steps of h' = tanh(A h + a_t), or, gated, of h' = sigmoid(A h + z_t) tanh(A h + a_t)::

        h_t = h_{t-1} + step tanh(A h_{t-1} + a_t)

    The loop over time is one of PyTorch operations: a product with A and a few elementwise ones for each step. In
    the backward pass A's gradient is one product over all steps.

    Args:
        part: a_t (T, B, N); gated: z_t then a_t, (T, B, 2N).
        matrix: A (N, N).
        h0: (B, N), None for zeros.
        lengths: (B,) steps of each sequence; states beyond are zero, and the last state is that after a
            sequence's own last step.
        reverse: run from each sequence's last step to its first. states[t] stays aligned with part[t].

    Returns:
        all states (T, B, N) and the last one (B, N).
    """
    size = matrix.shape[0]
    expected = (2 if gated else 1) * size
    if matrix.dim() != 2 or matrix.shape[1] != size:
        raise ValueError(f"matrix: expected shape (N, N), got {tuple(matrix.shape)}")
    if part.dim() != 3 or part.shape[2] != expected:
        raise ValueError(f"part: expected shape (T, B, {expected}), got {tuple(part.shape)}")
    if h0 is None:
        h0 = part.new_zeros(part.shape[1], size)
    elif h0.shape != (part.shape[1], size):
        raise ValueError(f"h0: expected shape ({part.shape[1]}, {size}), got {tuple(h0.shape)}")
    if torch.compiler.is_compiling():
        return euler_scan_reference(part, matrix, h0, lengths, step=step, gated=gated, reverse=reverse)
    states, h = _Euler.apply(part, matrix, h0, lengths, step, gated, reverse)  # type: ignore[no-untyped-call]
    return states, h


def euler_scan_reference(
    part: Tensor,
    matrix: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    *,
    step: float,
    gated: bool,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The definition of what `euler_scan` computes, one step after the other, differentiable any number of times."""
    h = h0
    states: list[Tensor] = [torch.empty(0)] * len(part)
    for t in time_order(len(part), reverse):
        product = h @ matrix.mT
        if gated:
            z, a = part[t].chunk(2, dim=-1)
            new = h + step * torch.sigmoid(product + z) * torch.tanh(product + a)
        else:
            new = h + step * torch.tanh(product + part[t])
        if lengths is None:
            h = states[t] = new
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h = torch.where(active, new, h)
            states[t] = torch.where(active, new, torch.zeros_like(new))
    return torch.stack(states), h


class _Euler(torch.autograd.Function):
    """Keeps the states before each step and the nonlinearities' values; `active` is 0 beyond a sequence's end."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Tensor,
        matrix: Tensor,
        h0: Tensor,
        lengths: Tensor | None,
        step: float,
        gated: bool,
        reverse: bool,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, size = len(part), part.shape[1], matrix.shape[0]
        before = part.new_empty(steps, batch, size)
        candidates = torch.empty_like(before)
        gates = torch.empty_like(before) if gated else None
        states = torch.empty_like(before)
        active = active_steps(lengths, part)
        transposed, h = matrix.mT.contiguous(), h0
        for t in time_order(steps, reverse):
            before[t] = h
            candidate = candidates[t]
            if gates is None:
                torch.addmm(part[t], h, transposed, out=candidate).tanh_()
                change = candidate
            else:
                torch.mm(h, transposed, out=candidate)
                torch.add(candidate, part[t, :, :size], out=gates[t]).sigmoid_()
                candidate.add_(part[t, :, size:]).tanh_()
                change = candidate * gates[t]
            if active is not None:
                change = change * active[t]
            h = torch.add(h, change, alpha=step, out=states[t])
        last = h.clone()
        if active is not None:
            states *= active
        ctx.save_for_backward(part, matrix, h0, lengths, before, candidates, gates)
        ctx.settings = (step, gated, reverse)
        ctx.set_materialize_grads(False)
        return states, last

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        part, matrix, h0, lengths, before, candidates, gates = ctx.saved_tensors
        step, gated, reverse = ctx.settings
        dstates, dlast = gradients
        if torch.is_grad_enabled():
            # The gradient is itself to be differentiated: take it through the reference, which can be.
            results = euler_scan_reference(part, matrix, h0, lengths, step=step, gated=gated, reverse=reverse)
            wants = ctx.needs_input_grad[:3]
            return *differentiable_gradients(results, gradients, (part, matrix, h0), wants), *[None] * 4
        size = matrix.shape[0]
        active = active_steps(lengths, part)
        dpart = torch.empty_like(part)
        # For the product A h_{t-1}, which the gate and the candidate share.
        dproduct = torch.empty_like(before) if gated else dpart
        dh = torch.zeros_like(h0) if dlast is None else dlast.clone()
        for t in time_order(len(part), not reverse):
            if dstates is not None:
                dh = dh + (dstates[t] if active is None else dstates[t] * active[t])
            change = dh * step if active is None else dh * (step * active[t])
            candidate = candidates[t]
            if gates is None:
                torch.mul(change, 1 - candidate * candidate, out=dpart[t])
            else:
                gate, dgate, dcandidate = gates[t], dpart[t, :, :size], dpart[t, :, size:]
                dgate.copy_(change * candidate * gate * (1 - gate))
                dcandidate.copy_(change * gate * (1 - candidate * candidate))
                torch.add(dgate, dcandidate, out=dproduct[t])
            dh = torch.addmm(dh, dproduct[t], matrix)
        dmatrix = dproduct.flatten(0, 1).mT @ before.flatten(0, 1)
        return dpart, dmatrix, dh, None, None, None, None
