"""The recurrence of a discretised differential equation with a backward pass of its own."""

from typing import Any

import torch
from torch import Tensor

from kru.ops.euler.reference import euler_scan_reference
from kru.ops.higher_order import differentiable_gradients
from kru.ops.time_steps import active_steps, restarts, time_order


class Euler(torch.autograd.Function):
    """Keeps the states before each step and the nonlinearities' values; `active` is 0 beyond a sequence's end."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Tensor,
        matrix: Tensor,
        h0: Tensor,
        lengths: Tensor | None,
        reset: Tensor | None,
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
        anew = restarts(reset, lengths, reverse=reverse)
        for t in time_order(steps, reverse):
            if anew is not None:
                h = h.masked_fill(anew[t], 0)
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
        ctx.save_for_backward(part, matrix, h0, lengths, reset, before, candidates, gates)
        ctx.settings = (step, gated, reverse)
        ctx.set_materialize_grads(False)
        return states, last

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        part, matrix, h0, lengths, reset, before, candidates, gates = ctx.saved_tensors
        step, gated, reverse = ctx.settings
        dstates, dlast = gradients
        if torch.is_grad_enabled():
            # The gradient is itself to be differentiated: take it through the reference, which can be.
            results = euler_scan_reference(
                part, matrix, h0, lengths, reset=reset, step=step, gated=gated, reverse=reverse
            )
            wants = ctx.needs_input_grad[:3]
            return *differentiable_gradients(results, gradients, (part, matrix, h0), wants), *[None] * 5
        size = matrix.shape[0]
        active = active_steps(lengths, part)
        anew = restarts(reset, lengths, reverse=reverse)
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
            if anew is not None:
                dh = dh.masked_fill(anew[t], 0)
        dmatrix = dproduct.flatten(0, 1).mT @ before.flatten(0, 1)
        return dpart, dmatrix, dh, None, None, None, None, None
