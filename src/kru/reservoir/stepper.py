"""One step of a reservoir after the other, for loops through the read-out: the native call is prepared once."""

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from kru.ops import bindings
from kru.ops.scan.cells import CELLS, NONLINEARITIES
from kru.reservoir.reservoir import Reservoir


class Stepper:
    """`step(x)` advances the state by one input (B, D) and returns it, (B, S). Gradients are not recorded.

    The same as `reservoir.step`, which spends most of its time on checks and dispatch; a prepared call does them once.
    A step of 256 units took 12 us instead of 234. The returned tensor is overwritten by the next step. Compositions,
    reservoirs that are not on the CPU and a missing native library take `reservoir.step`.
    """

    def __init__(self, reservoir: nn.Module, state: Any = None, batch: int = 1) -> None:
        self._reservoir = reservoir
        self._state = state
        self._call: Any = None
        if not isinstance(reservoir, Reservoir) or bindings.library is None:
            return
        weight = reservoir.weight_ih_l0.detach()
        if not weight.is_cpu or weight.dtype not in bindings.REAL_DTYPES:
            return
        self._weight = weight.T
        bias = reservoir.bias_l0.detach()  # type: ignore[operator]
        self._inner = bias.contiguous() if reservoir.nonlinearity == "modrelu" else None
        self._bias = torch.zeros_like(weight[:, 0]) if self._inner is not None else bias
        leak = reservoir.leak
        self._leak = None if leak is None else leak.detach().expand(reservoir.units).contiguous()
        size = reservoir.state_size
        self._part = weight.new_empty(batch, size)
        self._h = weight.new_zeros(batch, size) if state is None else state[0].detach().clone().contiguous()
        self._out = weight.new_empty(batch, size)
        self._factors = [factor.detach().contiguous() for factor in reservoir.matrix().factors()]
        shapes = bindings.shapes_of(*[factor.shape[-2:] for factor in self._factors])
        self._kept = (shapes, shapes.pointers(*[factor.data_ptr() for factor in self._factors]))
        self._call = _call(reservoir, batch, *self._kept)
        self._call.part, self._call.h0 = self._part.data_ptr(), self._h.data_ptr()
        self._call.states, self._call.h = self._out.data_ptr(), self._h.data_ptr()
        if self._leak is not None:
            self._call.leak = self._leak.data_ptr()
        if self._inner is not None:
            self._call.bias = self._inner.data_ptr()

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """x (B, D) -> the new state (B, S)."""
        if self._call is None:
            output: Tensor
            output, self._state = self._reservoir.step(x, self._state)  # type: ignore[operator]
            return output
        torch.addmm(self._bias, x, self._weight, out=self._part)
        assert bindings.library is not None
        bindings.check_status(bindings.library.kru_scan_forward(self._call))
        return self._out


def _call(reservoir: Reservoir, batch: int, shapes: Any, pointers: Any) -> Any:
    call = bindings.ScanCall()
    call.dtype = bindings.precision(reservoir.weight_ih_l0)
    call.is_complex = reservoir.field == "complex"
    call.threads, call.factor_count = torch.get_num_threads(), shapes.count
    call.cell, call.nonlinearity = CELLS["elman"].code, NONLINEARITIES[reservoir.nonlinearity].code
    call.input_kind, call.reverse = bindings.PART, 0
    call.steps, call.batch, call.inputs, call.rank = 1, batch, 0, 1
    call.p, call.q, call.factors = shapes.p, shapes.q, ctypes.addressof(pointers)
    return call
