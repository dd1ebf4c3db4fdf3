"""The recurrence on the native kernels, registered with torch: operator, shapes for tracing, gradient."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kru.ops import bindings
from kru.ops.higher_order import differentiable_gradients
from kru.ops.registration import register
from kru.ops.scan.checks import GATES, check_scan_arguments, check_scan_values, check_wants, factor_rank
from kru.ops.scan.reference import input_part, scan_reference

SMALL_INPUT = 16
"""Inputs of up to this many values are multiplied inside the kernel, larger ones by one matrix product for all
steps."""
SMALL_TABLE = 1 << 21
"""Symbols are looked up inside the kernel while the input map has at most this many entries: each thread keeps a
gradient of that size."""


class Settings(NamedTuple):
    """The arguments of the operators that are not tensors, in their order."""

    cell: str
    nonlinearity: str
    is_complex: bool
    reverse: bool


def input_kind(x: Tensor, weight: Tensor | None) -> int:
    """How the input reaches the kernel: PART, a_t computed before, or DENSE or SYMBOLS, multiplied inside."""
    if weight is None:
        return bindings.PART
    if x.is_floating_point():
        return bindings.DENSE if 0 < x.shape[2] <= SMALL_INPUT else bindings.PART
    return bindings.SYMBOLS if 0 < weight.numel() <= SMALL_TABLE else bindings.PART


def _inner_bias(settings: Settings) -> bool:
    """Whether the bias is modReLU's own and no part of a_t."""
    return settings.cell == "elman" and settings.nonlinearity == "modrelu"


def _reserve_shape(x: Tensor, weight: Tensor | None, settings: Settings, state: int) -> tuple[Any, ...]:
    """Shape of what the forward pass keeps for the backward pass besides states and cells: gates or modReLU's a_t."""
    steps, batch = x.shape[:2]
    if settings.cell != "elman":
        return steps, batch, GATES[settings.cell] * state
    outside = weight is not None and input_kind(x, weight) == bindings.PART
    return (steps, batch, state) if outside and _inner_bias(settings) else (0,)


class _Call:
    """A kernel call under construction. Keeps alive whatever its pointers point into."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        factors: Sequence[Tensor],
        settings: Settings,
        part: Tensor | None,
    ) -> None:
        shapes = bindings.shapes_of(*[factor.shape[-2:] for factor in factors])
        self.shapes = shapes
        self.kept: list[Any] = [bindings.dense(factor) for factor in factors]
        pointers = shapes.pointers(*[factor.data_ptr() for factor in self.kept])
        self.kept.append(pointers)
        self.call = bindings.ScanCall(
            bindings.precision(factors[0]),
            settings.is_complex,
            torch.get_num_threads(),
            shapes.count,
            bindings.CELLS[settings.cell],
            bindings.NONLINEARITIES[settings.nonlinearity] if settings.cell == "elman" else 0,
            input_kind(x, weight),
            settings.reverse,
            x.shape[0],
            x.shape[1],
            weight.shape[1] if weight is not None else 0,
            factor_rank(factors, settings.cell, settings.is_complex),
            shapes.p,
            shapes.q,
            ctypes.addressof(pointers),
        )
        if self.call.input_kind == bindings.PART:
            self.set(part=part)
        elif self.call.input_kind == bindings.DENSE:
            self.set(x=x, weight=weight)
        else:
            self.set(symbols=x.to(torch.int64), weight=weight)

    def set(self, **tensors: Tensor | None) -> None:
        for name, tensor in tensors.items():
            if tensor is not None:
                tensor = bindings.dense(tensor)
                self.kept.append(tensor)
                setattr(self.call, name, tensor.data_ptr())

    def run(self, direction: str) -> None:
        assert bindings.library is not None
        bindings.check_status(getattr(bindings.library, f"kru_scan_{direction}")(self.call))


def _forward_op(
    x: Tensor,
    weight: Tensor | None,
    factors: list[Tensor],
    bias: Tensor | None,
    recurrent_bias: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    nonlinearity: str,
    is_complex: bool,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """states, h, c and, if `keep`, what the backward pass needs: the input part or the gates, and the cells."""
    settings = Settings(cell, nonlinearity, is_complex, reverse)
    check_scan_arguments(
        x, weight, factors, cell, nonlinearity, is_complex, bias, recurrent_bias, h0, c0, lengths
    )
    check_scan_values(x, weight, lengths)
    steps, batch = x.shape[:2]
    like = factors[0]
    gated = cell != "elman"
    part = None
    if input_kind(x, weight) == bindings.PART:
        # Autocast would make the part's dtype another one than the kernel's.
        with torch.autocast("cpu", enabled=False):
            part = bindings.dense(input_part(x, weight, None if _inner_bias(settings) else bias))
    call = _Call(x, weight, factors, settings, part)
    units = call.shapes.rows
    state = units * (2 if is_complex else 1)
    states = bindings.empty((steps, batch, state), like)
    h = bindings.empty((batch, state), like)
    c = bindings.empty((batch, units) if cell == "lstm" else (0,), like)
    cells = bindings.empty((steps, batch, units) if gated and keep else (0,), like)
    reserve = bindings.empty((0,), like)
    if gated and keep:
        # The gates take the place of the input part where that is ours.
        own = part is not None and part.data_ptr() != x.data_ptr()
        reserve = part if own else bindings.empty((steps, batch, GATES[cell] * units), like)  # type: ignore[assignment]
        call.set(gates=reserve, cells=cells)
    elif keep and _inner_bias(settings) and part is not None and weight is not None:
        reserve = part
    call.set(bias=bias, recurrent_bias=recurrent_bias, h0=h0, c0=c0, states=states, h=h)
    call.set(lengths=None if lengths is None else lengths.to("cpu", torch.int64))
    if cell == "lstm":
        call.set(c=c)
    call.run("forward")
    return states, h, c, reserve, cells


def _forward_fake(
    x: Tensor,
    weight: Tensor | None,
    factors: list[Tensor],
    bias: Tensor | None,
    recurrent_bias: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    nonlinearity: str,
    is_complex: bool,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    check_scan_arguments(
        x, weight, factors, cell, nonlinearity, is_complex, bias, recurrent_bias, h0, c0, lengths
    )
    like = factors[0]
    steps, batch = x.shape[:2]
    units = 1
    for factor in factors:
        units *= factor.shape[-2]
    state = units * (2 if is_complex else 1)
    gated = cell != "elman"
    settings = Settings(cell, nonlinearity, is_complex, reverse)
    reserve = _reserve_shape(x, weight, settings, state) if keep else (0,)
    return (
        like.new_empty((steps, batch, state)),
        like.new_empty((batch, state)),
        like.new_empty((batch, units) if cell == "lstm" else (0,)),
        like.new_empty(reserve),
        like.new_empty((steps, batch, units) if gated and keep else (0,)),
    )


def _backward_op(
    dstates: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    factors: list[Tensor],
    bias: Tensor | None,
    recurrent_bias: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    reserve: Tensor,
    cells: Tensor,
    cell: str,
    nonlinearity: str,
    is_complex: bool,
    reverse: bool,
    wants: list[bool],
) -> list[Tensor]:
    """Gradients of x, weight, bias, recurrent_bias, h0, c0 and each factor; those not wanted are empty."""
    settings = Settings(cell, nonlinearity, is_complex, reverse)
    check_scan_arguments(
        x, weight, factors, cell, nonlinearity, is_complex, bias, recurrent_bias, h0, c0, lengths
    )
    check_scan_values(x, weight, lengths)
    _check_backward(dstates, dh, dc, x, weight, factors, states, reserve, cells, settings)
    kind = input_kind(x, weight)
    inner = _inner_bias(settings)
    part = None
    if kind == bindings.PART:
        part = x if weight is None else reserve
    call = _Call(x, weight, factors, settings, part)
    call.set(
        bias=bias if inner or kind != bindings.PART else None, recurrent_bias=recurrent_bias, h0=h0, c0=c0
    )
    call.set(lengths=None if lengths is None else lengths.to("cpu", torch.int64))
    call.set(states=states, dstates=dstates, dh=dh)
    if cell == "lstm":
        call.set(dc=dc)
    if cell != "elman":
        call.set(gates=reserve, cells=cells)

    inputs = [x, weight, bias, recurrent_bias, h0, c0, *factors]
    check_wants(wants, inputs)
    out = [
        bindings.empty(t.shape if want and t is not None else (0,), factors[0])
        for t, want in zip(inputs, wants, strict=True)
    ]
    dx, dweight, dbias, dfactors = out[0], out[1], out[2], out[6:]
    if any(wants[6:]):
        gradients = call.shapes.pointers(
            *[t.data_ptr() if want else None for t, want in zip(dfactors, wants[6:], strict=True)]
        )
        call.kept.append(gradients)
        call.call.dfactors = ctypes.addressof(gradients)
    wanted = {
        name: tensor
        for name, tensor, want in zip(
            ("dx", "dweight", "dbias", "drecurrent_bias", "dh0", "dc0"), out[:6], wants[:6], strict=True
        )
        if want
    }
    if kind != bindings.PART:
        call.set(**wanted)
        call.run("backward")
        return out
    # The kernel gives the gradient at a_t; the input map's own gradients are matrix products over all steps.
    map_names = {"dx", "dweight"} if inner else {"dx", "dweight", "dbias"}
    call.set(**{name: tensor for name, tensor in wanted.items() if name not in map_names})
    dpart = None
    if map_names & wanted.keys():
        if weight is None and wants[0]:
            dpart = dx
        else:
            dpart = bindings.empty(
                (*x.shape[:2], GATES[cell] * call.shapes.rows * (2 if is_complex else 1)), factors[0]
            )
        call.set(dpart=dpart)
    call.run("backward")
    if dpart is not None:
        flat = dpart.flatten(0, 1)
        if wants[2] and not inner:
            torch.sum(flat, 0, out=dbias)
        if weight is not None and wants[1]:
            if x.is_floating_point():
                torch.mm(flat.t(), x.flatten(0, 1), out=dweight)
            else:
                table = flat.new_zeros(weight.shape[1], weight.shape[0])
                dweight.copy_(table.index_add_(0, x.flatten().to(torch.int64), flat).t())
        if weight is not None and wants[0]:
            torch.mm(flat, weight, out=dx.flatten(0, 1))
    return out


def _check_backward(
    dstates: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    factors: list[Tensor],
    states: Tensor,
    reserve: Tensor,
    cells: Tensor,
    settings: Settings,
) -> None:
    """Shapes and dtypes of what the forward pass kept and of the gradients that arrive."""
    (steps, batch), like = x.shape[:2], factors[0]
    units = 1
    for factor in factors:
        units *= factor.shape[-2]
    state = units * (2 if settings.is_complex else 1)
    gated = settings.cell != "elman"
    expected = {
        "dstates": (dstates, (steps, batch, state)),
        "dh": (dh, (batch, state)),
        "dc": (dc, (batch, units) if settings.cell == "lstm" else (0,)),
        "states": (states, (steps, batch, state)),
        "reserve": (reserve, _reserve_shape(x, weight, settings, state)),
        "cells": (cells, (steps, batch, units) if gated else (0,)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None or name not in ("dstates", "dh", "dc"):
            bindings.check_same(name, tensor, shape, like)


def _backward_fake(
    dstates: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    factors: list[Tensor],
    bias: Tensor | None,
    recurrent_bias: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    reserve: Tensor,
    cells: Tensor,
    cell: str,
    nonlinearity: str,
    is_complex: bool,
    reverse: bool,
    wants: list[bool],
) -> list[Tensor]:
    inputs = [x, weight, bias, recurrent_bias, h0, c0, *factors]
    return [
        states.new_empty(t.shape if want and t is not None else (0,))
        for t, want in zip(inputs, wants, strict=True)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, factors, bias, recurrent_bias, h0, c0, lengths, *settings, _ = inputs
    states, _, _, reserve, cells = output
    ctx.settings = Settings(*settings)
    ctx.count = len(factors)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(reserve, cells)
    optional = [x, weight, bias, recurrent_bias, h0, c0, lengths]
    ctx.present = [t is not None for t in optional]
    ctx.save_for_backward(*[t for t in optional if t is not None], *factors, states, reserve, cells)


def _backward(
    ctx: Any, dstates: Tensor | None, dh: Tensor | None, dc: Tensor | None, *_: Any
) -> tuple[Tensor | list[Tensor | None] | None, ...]:
    saved = list(ctx.saved_tensors)
    optional: list[Any] = [saved.pop(0) if there else None for there in ctx.present]
    x, weight, bias, recurrent_bias, h0, c0, lengths = optional
    factors, (states, reserve, cells) = saved[: ctx.count], saved[ctx.count :]
    needs = ctx.needs_input_grad  # in the operator's order: x, weight, factors, bias, ...
    wants = [needs[0], needs[1], needs[3], needs[4], needs[5], needs[6], *needs[2]]
    if dstates is None and dh is None and dc is None:
        out: list[Tensor | None] = [None] * len(wants)
    elif torch.is_grad_enabled():
        # The gradient is itself to be differentiated: take it through the reference, which can be.
        inputs = [x, weight, bias, recurrent_bias, h0, c0, *factors]
        cell, nonlinearity, is_complex, reverse = ctx.settings
        results = scan_reference(
            x,
            weight,
            factors,
            cell=cell,
            nonlinearity=nonlinearity,
            is_complex=is_complex,
            bias=bias,
            recurrent_bias=recurrent_bias,
            h0=h0,
            c0=c0,
            lengths=lengths,
            reverse=reverse,
        )
        out = differentiable_gradients(results, (dstates, dh, dc), inputs, wants)
    else:
        tensors = torch.ops.kru.scan_backward(
            dstates, dh, dc, x, weight, factors, bias, recurrent_bias, h0, c0, lengths, states, reserve, cells,
            *ctx.settings, wants,
        )  # fmt: skip
        out = [gradient if want else None for gradient, want in zip(tensors, wants, strict=True)]
    dx, dweight, dbias, drecurrent_bias, dh0, dc0, *dfactors = out
    return dx, dweight, dfactors, dbias, drecurrent_bias, dh0, dc0, *([None] * 6)


_INPUTS = (
    "Tensor x, Tensor? weight, Tensor[] factors, Tensor? bias, Tensor? recurrent_bias, Tensor? h0, Tensor? c0, "
    "Tensor? lengths"
)
_SETTINGS = "str cell, str nonlinearity, bool is_complex, bool reverse"
register(
    f"scan({_INPUTS}, {_SETTINGS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward_op,
    _forward_fake,
    _backward,
    _setup_context,
)
register(
    f"scan_backward(Tensor? dstates, Tensor? dh, Tensor? dc, {_INPUTS}, Tensor states, Tensor reserve, "
    f"Tensor cells, {_SETTINGS}, bool[] wants) -> Tensor[]",
    _backward_op,
    _backward_fake,
)
