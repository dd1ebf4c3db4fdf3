"""The recurrence registered with torch: operator, native kernels for the CPU, shapes for tracing, gradient."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kru.ops import bindings, gpu
from kru.ops.higher_order import differentiable_gradients
from kru.ops.precision import without_autocast
from kru.ops.registration import register
from kru.ops.scan.arguments import DIFFERENTIABLE, TENSORS, ScanArguments
from kru.ops.scan.cells import CELLS, NONLINEARITIES
from kru.ops.scan.checks import check_scan_arguments, check_scan_values, check_wants
from kru.ops.scan.contract import (
    Gradients,
    Kept,
    input_kind,
    keeps_part,
    kept_shapes,
    map_gradients,
    result_shape,
)
from kru.ops.scan.fallback import scan_fallback
from kru.ops.scan.reference import input_part


class _Call:
    """A kernel call under construction. Keeps alive the memory that its pointers point into."""

    def __init__(self, arguments: ScanArguments, part: Tensor | None) -> None:
        x, weight, factors = arguments.x, arguments.weight, arguments.factors
        shapes = bindings.shapes_of(*[factor.shape[-2:] for factor in factors])
        self.shapes = shapes
        self.kept: list[Any] = [bindings.dense(factor) for factor in factors]
        pointers = shapes.pointers(*[factor.data_ptr() for factor in self.kept])
        self.kept.append(pointers)
        self.call = bindings.ScanCall(
            bindings.precision(factors[0]),
            arguments.is_complex,
            torch.get_num_threads(),
            shapes.count,
            CELLS[arguments.cell].code,
            0 if arguments.has_gates else NONLINEARITIES[arguments.nonlinearity].code,
            input_kind(x, weight),
            arguments.reverse,
            arguments.steps,
            arguments.batch,
            weight.shape[1] if weight is not None else 0,
            arguments.rank,
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
        self.set(recurrent_bias=arguments.recurrent_bias, h0=arguments.h0, c0=arguments.c0)
        self.set(leak=arguments.leak, reset=arguments.reset, initial=arguments.initial)
        self.call.every = arguments.every
        if arguments.lengths is not None:
            self.set(lengths=arguments.lengths.to("cpu", torch.int64))

    def set(self, **tensors: Tensor | None) -> None:
        for name, tensor in tensors.items():
            if tensor is not None:
                tensor = bindings.dense(tensor)
                self.kept.append(tensor)
                setattr(self.call, name, tensor.data_ptr())

    def run(self, direction: str) -> None:
        assert bindings.library is not None
        bindings.check_status(getattr(bindings.library, f"kru_scan_{direction}")(self.call))


def _forward_op(*flat: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """states, h, c and, if `keep`, what the backward pass needs: the input part or the gates, and the cells."""
    *given, keep = flat
    arguments = ScanArguments(*given)
    if gpu.ON_CPU and gpu.runs(arguments.factors[0]):
        return _gpu_forward_op(*flat)
    check_scan_arguments(arguments)
    check_scan_values(arguments.x, arguments.weight, arguments.lengths)
    x, weight, bias = arguments.x, arguments.weight, arguments.bias
    like = arguments.factors[0]
    shapes = kept_shapes(arguments)
    last = (arguments.batch, arguments.state)
    part = None
    if input_kind(x, weight) == bindings.PART:
        # Autocast would make the part's dtype another one than the kernel's.
        with torch.autocast("cpu", enabled=False):
            part = bindings.dense(input_part(x, weight, None if arguments.has_inner_bias else bias))
    call = _Call(arguments, part)
    states = bindings.empty(result_shape(arguments), like)
    h = bindings.empty(last, like)
    c = bindings.empty(last if arguments.has_memory else (0,), like)
    cells = bindings.empty(shapes["cells"] if keep else (0,), like)
    reserve = bindings.empty((0,), like)
    if arguments.every:
        # Without a backward pass nothing need be kept.
        call.call.every = arguments.every if keep else 0
        if keep:
            reserve = bindings.empty(shapes["reserve"], like)
            call.set(kept_h=reserve, kept_c=cells if arguments.has_memory else None)
    elif arguments.has_gates and keep:
        # The gates take the place of the input part where that is ours.
        own = part is not None and part.data_ptr() != x.data_ptr()
        reserve = part if own else bindings.empty(shapes["reserve"], like)  # type: ignore[assignment]
        call.set(gates=reserve, cells=cells)
    elif keep and part is not None and keeps_part(arguments):
        reserve = part
    call.set(bias=bias, states=states if arguments.need_states else None, h=h)
    if arguments.has_memory:
        call.set(c=c)
    call.run("forward")
    return states, h, c, reserve, cells


def _forward_fake(*flat: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *given, keep = flat
    arguments = ScanArguments(*given)
    check_scan_arguments(arguments)
    new, shapes = arguments.factors[0].new_empty, kept_shapes(arguments)
    last = (arguments.batch, arguments.state)
    return (
        new(result_shape(arguments)),
        new(last),
        new(last if arguments.has_memory else (0,)),
        new(shapes["reserve"] if keep else (0,)),
        new(shapes["cells"] if keep else (0,)),
    )


def _unflattened(flat: Sequence[Any]) -> tuple[ScanArguments, Gradients, Kept, list[bool]]:
    """The arguments of the backward operator, which has the tensors first."""
    incoming, rest = flat[:3], flat[3:]
    tensors, kept, settings = rest[:TENSORS], rest[TENSORS : TENSORS + 3], rest[TENSORS + 3 : -1]
    return ScanArguments(*tensors, *settings), Gradients(*incoming), Kept(*kept), flat[-1]


def _backward_op(*flat: Any) -> list[Tensor]:
    """Gradients of what is `DIFFERENTIABLE` and of each factor; those not wanted are empty."""
    arguments, incoming, kept, wants = _unflattened(flat)
    if gpu.ON_CPU and gpu.runs(arguments.factors[0]):
        return _gpu_backward_op(*flat)
    check_scan_arguments(arguments)
    check_scan_values(arguments.x, arguments.weight, arguments.lengths)
    _check_backward(arguments, incoming, kept)
    x, weight, factors = arguments.x, arguments.weight, arguments.factors
    kind = input_kind(x, weight)
    inner = arguments.has_inner_bias
    part = None
    if kind == bindings.PART:
        if arguments.every:
            part = bindings.dense(input_part(x, weight, None if inner else arguments.bias))
        else:
            part = kept.reserve if weight is not None or keeps_part(arguments) else x
    call = _Call(arguments, part)
    call.set(bias=arguments.bias if inner or kind != bindings.PART else None)
    call.set(dstates=incoming.dstates, dh=incoming.dh)
    if arguments.has_memory:
        call.set(dc=incoming.dc)
    if arguments.every:
        call.set(kept_h=kept.reserve, kept_c=kept.cells if arguments.has_memory else None)
    else:
        call.set(states=kept.states)
        if arguments.has_gates:
            call.set(gates=kept.reserve, cells=kept.cells)

    inputs = arguments.differentiable
    check_wants(wants, inputs)
    out = [
        bindings.empty(t.shape if want and t is not None else (0,), factors[0])
        for t, want in zip(inputs, wants, strict=True)
    ]
    own = len(DIFFERENTIABLE)
    dx, dfactors = out[0], out[own:]
    if any(wants[own:]):
        gradients = call.shapes.pointers(
            *[t.data_ptr() if want else None for t, want in zip(dfactors, wants[own:], strict=True)]
        )
        call.kept.append(gradients)
        call.call.dfactors = ctypes.addressof(gradients)
    wanted = {
        f"d{name}": tensor
        for name, tensor, want in zip(DIFFERENTIABLE, out[:own], wants[:own], strict=True)
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
            width = arguments.gates * arguments.state
            dpart = bindings.empty((arguments.steps, arguments.batch, width), factors[0])
        call.set(dpart=dpart)
    call.run("backward")
    if dpart is not None:
        map_gradients(arguments, dpart, {name[1:]: tensor for name, tensor in wanted.items()})
    return out


def _gpu_forward_op(*flat: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *given, keep = flat
    arguments = ScanArguments(*given)
    check_scan_arguments(arguments)
    _check_gpu(arguments)
    from kru.ops.scan import triton

    triton.check_values(arguments)
    with without_autocast(arguments.x.device.type):
        return triton.forward(arguments, keep)


def _gpu_backward_op(*flat: Any) -> list[Tensor]:
    arguments, incoming, kept, wants = _unflattened(flat)
    check_scan_arguments(arguments)
    _check_gpu(arguments)
    _check_backward(arguments, incoming, kept)
    check_wants(wants, arguments.differentiable)
    from kru.ops.scan import triton

    with without_autocast(arguments.x.device.type):
        return triton.backward(arguments, incoming, kept, wants)


def _check_gpu(arguments: ScanArguments) -> None:
    gpu.check(arguments.factors[0])
    if arguments.every:
        raise ValueError(f"every: expected 0 on a GPU, where all states are kept, got {arguments.every}")


def _check_backward(arguments: ScanArguments, incoming: Gradients, kept: Kept) -> None:
    """Shapes and dtypes of what the forward pass kept and of the gradients that arrive."""
    like, shapes = arguments.factors[0], kept_shapes(arguments)
    last = (arguments.batch, arguments.state)
    expected = {"dstates": (arguments.steps, *last), "dh": last, "dc": last if arguments.has_memory else (0,)}
    for name, tensor in incoming._asdict().items():
        if tensor is not None:
            bindings.check_same(name, tensor, expected[name], like)
    for name, tensor in kept._asdict().items():
        bindings.check_same(name, tensor, shapes[name], like)


def _backward_fake(*flat: Any) -> list[Tensor]:
    arguments, _, _, wants = _unflattened(flat)
    return [
        arguments.factors[0].new_empty(t.shape if want and t is not None else (0,))
        for t, want in zip(arguments.differentiable, wants, strict=True)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    arguments = ScanArguments(*inputs[:-1])
    states, _, _, reserve, cells = output
    ctx.settings = arguments.settings
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(reserve, cells, *([] if arguments.need_states else [states]))
    optional = {name: t for name, t in arguments.tensors.items() if t is not None and name != "factors"}
    ctx.present = list(optional)
    # With `every` the states are no part of what is kept, only a result if anything.
    kept_states = states.new_empty(0) if arguments.every else states
    ctx.save_for_backward(kept_states, reserve, cells, *optional.values(), *arguments.factors)


def _backward(
    ctx: Any, dstates: Tensor | None, dh: Tensor | None, dc: Tensor | None, *_: Any
) -> tuple[Tensor | list[Tensor | None] | None, ...]:
    states, reserve, cells, *saved = ctx.saved_tensors
    there: dict[str, Any] = {"weight": None, **dict(zip(ctx.present, saved, strict=False))}
    arguments = ScanArguments(**there, factors=saved[len(ctx.present) :], **ctx.settings)
    needs = dict(zip(ScanArguments._fields, ctx.needs_input_grad, strict=False))
    wants = [*[needs[name] for name in DIFFERENTIABLE], *needs["factors"]]
    if not arguments.need_states:
        dstates = None  # of an empty tensor
    if dstates is None and dh is None and dc is None:
        out: list[Tensor | None] = [None] * len(wants)
    elif torch.is_grad_enabled():
        # The gradient is itself to be differentiated: take it through the fallback, which can be.
        results = scan_fallback(arguments)
        out = differentiable_gradients(results, (dstates, dh, dc), arguments.differentiable, wants)
    else:
        tensors = torch.ops.kru.scan_backward(
            dstates,
            dh,
            dc,
            *arguments.tensors.values(),
            states,
            reserve,
            cells,
            *ctx.settings.values(),
            wants,
        )
        out = [gradient if want else None for gradient, want in zip(tensors, wants, strict=True)]
    gradients: dict[str, Any] = dict(zip(DIFFERENTIABLE, out, strict=False))
    gradients["factors"] = out[len(DIFFERENTIABLE) :]
    return *[gradients.get(name) for name in ScanArguments._fields], None


_INPUTS = (
    "Tensor x, Tensor? weight, Tensor[] factors, Tensor? bias, Tensor? recurrent_bias, Tensor? h0, Tensor? c0, "
    "Tensor? lengths, Tensor? leak, Tensor? reset, Tensor? initial"
)
_SETTINGS = "str cell, str nonlinearity, bool is_complex, bool reverse, int every, bool need_states"
register(
    f"scan({_INPUTS}, {_SETTINGS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward_op,
    _forward_fake,
    _backward,
    _setup_context,
    gpu=_gpu_forward_op,
)
register(
    f"scan_backward(Tensor? dstates, Tensor? dh, Tensor? dc, {_INPUTS}, Tensor states, Tensor reserve, "
    f"Tensor cells, {_SETTINGS}, bool[] wants) -> Tensor[]",
    _backward_op,
    _backward_fake,
    gpu=_gpu_backward_op,
)
