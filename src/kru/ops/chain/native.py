"""The recurrence with a chain of stages on the native kernels, registered with torch."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kru.ops import bindings
from kru.ops.chain.reference import chain_scan_reference
from kru.ops.chain.stages import KINDS, Fourier, Permutation, Rotations, Stage, from_program
from kru.ops.higher_order import differentiable_gradients
from kru.ops.registration import register
from kru.ops.scan.checks import check_lengths, check_scan_values, check_wants


class _Call:
    """A kernel call under construction. Keeps alive the memory that its pointers point into."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        tensors: Sequence[Tensor],
        program: Sequence[int],
        reverse: bool,
    ) -> None:
        stages = from_program(tensors, program)
        array: Any = (bindings.ChainStage * len(stages))()
        self.kept: list[Any] = [array]
        self.slots: list[tuple[Any, str]] = []
        """for each of the tensors, where its gradient goes: a structure and the name of a field"""
        for slot, stage in zip(array, stages, strict=True):
            self._fill(slot, stage)
        kind, name = bindings.PART, "part"
        if weight is not None:
            kind, name = (bindings.DENSE, "x") if x.is_floating_point() else (bindings.SYMBOLS, "symbols")
        shape, like = _states(x, weight)
        self.call = bindings.ChainCall(
            bindings.REAL_DTYPES[like.dtype],
            torch.get_num_threads(),
            len(stages),
            reverse,
            kind,
            0,
            *shape[:2],
            shape[2] // 2,
            0 if weight is None else weight.shape[1],
            ctypes.addressof(array),
        )
        self.set(weight=weight, **{name: x if kind != bindings.SYMBOLS else x.to(torch.int64)})

    def set(self, to: Any = None, **tensors: Tensor | None) -> None:
        for name, tensor in tensors.items():
            if tensor is not None:
                tensor = bindings.dense(tensor)
                self.kept.append(tensor)
                setattr(self.call if to is None else to, name, tensor.data_ptr())

    def run(self, direction: str) -> None:
        assert bindings.library is not None
        bindings.check_status(getattr(bindings.library, f"kru_chain_{direction}")(self.call))

    def _fill(self, slot: Any, stage: Stage) -> None:
        slot.kind = KINDS.index(type(stage))
        if isinstance(stage, Fourier):
            slot.inverse = stage.inverse
            return
        names = ["order" if isinstance(stage, Permutation) else "numbers"]
        if isinstance(stage, Rotations):
            names = ["c", "s", "numbers"]
            slot.first, slot.distance, slot.pairs = stage.first, stage.distance, len(stage.tensors[0])
        self.set(slot, **dict(zip(names, stage.tensors, strict=True)))
        self.slots += [(slot, f"d{name}") for name in names]


def _states(x: Tensor, weight: Tensor | None) -> tuple[torch.Size, Tensor]:
    """The shape of all states, and a tensor of their dtype and device."""
    return (x.shape, x) if weight is None else (torch.Size((*x.shape[:2], weight.shape[0])), weight)


def _check_input(x: Tensor, weight: Tensor | None) -> None:
    if weight is None:
        if x.dim() != 3 or x.shape[2] % 2 or x.dtype not in bindings.REAL_DTYPES:
            raise ValueError(
                "x: expected float32 or float64 (steps, batch, 2 * units), without a weight, "
                f"got {x.dtype} {tuple(x.shape)}"
            )
        return
    if (
        weight.dim() != 2
        or weight.shape[0] % 2
        or not weight.shape[1]
        or weight.dtype not in bindings.REAL_DTYPES
    ):
        raise ValueError(
            f"weight: expected float32 or float64 (2 * units, inputs), got {weight.dtype} {tuple(weight.shape)}"
        )
    if x.is_floating_point():
        bindings.check_same("x", x, (*x.shape[:2], weight.shape[1]), weight)
    elif x.dim() != 2 or x.dtype not in (torch.int32, torch.int64) or x.device != weight.device:
        raise ValueError(
            f"x: expected symbols (steps, batch) on {weight.device}, got {x.dtype} {tuple(x.shape)} on {x.device}"
        )


def _check(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    tensors: Sequence[Tensor],
    program: Sequence[int],
) -> None:
    """Shapes, dtypes and devices: the kernel trusts them."""
    _check_input(x, weight)
    (_, batch, width), like = _states(x, weight)
    size = width // 2
    if bias is not None:
        bindings.check_same("bias", bias, (size,), like)
    if h0 is not None:
        bindings.check_same("h0", h0, (batch, width), like)
    check_lengths(lengths, batch, x.device)
    number = like.new_empty(0, dtype=like.dtype.to_complex())
    for place, stage in enumerate(from_program(tensors, program)):
        name = f"stages[{place}]"
        if isinstance(stage, Permutation):
            bindings.check_same(name, stage.tensors[0], (size,), number.new_empty(0, dtype=torch.int64))
        elif isinstance(stage, Rotations):
            pairs = len(stage.tensors[0])
            for tensor, kind in zip(stage.tensors, (like, like, number), strict=True):
                bindings.check_same(name, tensor, (pairs,), kind)
            fits = 0 <= stage.first <= size - 2 * pairs and stage.distance > 0 and pairs % stage.distance == 0
            if not fits:
                raise ValueError(
                    f"{name}: expected pairs of {size} units in blocks of twice their distance, got {pairs} from "
                    f"unit {stage.first} on with distance {stage.distance}"
                )
        elif not isinstance(stage, Fourier):
            bindings.check_same(name, stage.tensors[0], (size,), number)


def _check_values(
    x: Tensor,
    weight: Tensor | None,
    lengths: Tensor | None,
    tensors: Sequence[Tensor],
    program: Sequence[int],
) -> None:
    check_scan_values(x, weight, lengths)
    for place, stage in enumerate(from_program(tensors, program)):
        if isinstance(stage, Permutation):
            order = stage.tensors[0]
            if not torch.equal(order.sort().values, torch.arange(len(order))):
                raise ValueError(f"stages[{place}]: expected each of 0 to {len(order) - 1} once")


def _forward_op(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    tensors: list[Tensor],
    program: list[int],
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """states and h"""
    _check(x, weight, bias, h0, lengths, tensors, program)
    _check_values(x, weight, lengths, tensors, program)
    call = _Call(x, weight, tensors, program, reverse)
    shape, like = _states(x, weight)
    states, h = bindings.empty(shape, like), bindings.empty(shape[1:], like)
    call.set(bias=bias, h0=h0, states=states, h=h)
    call.set(lengths=None if lengths is None else lengths.to("cpu", torch.int64))
    call.run("forward")
    return states, h


def _forward_fake(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    tensors: list[Tensor],
    program: list[int],
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    _check(x, weight, bias, h0, lengths, tensors, program)
    shape, like = _states(x, weight)
    return like.new_empty(shape), like.new_empty(shape[1:])


def _backward_op(
    dstates: Tensor | None,
    dh: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    tensors: list[Tensor],
    program: list[int],
    reverse: bool,
    wants: list[bool],
) -> list[Tensor]:
    """Gradients of x, weight, bias, h0 and each of the tensors; those not wanted are empty."""
    _check(x, weight, bias, h0, lengths, tensors, program)
    _check_values(x, weight, lengths, tensors, program)
    shape, like = _states(x, weight)
    bindings.check_same("states", states, shape, like)
    for name, tensor, size in (("dstates", dstates, shape), ("dh", dh, shape[1:])):
        if tensor is not None:
            bindings.check_same(name, tensor, size, like)
    check_wants(wants, [x, weight, bias, h0, *tensors])
    call = _Call(x, weight, tensors, program, reverse)
    call.set(bias=bias, h0=h0, states=states, dstates=dstates, dh=dh)
    call.set(lengths=None if lengths is None else lengths.to("cpu", torch.int64))
    out = _backward_fake(
        dstates, dh, x, weight, bias, h0, lengths, states, tensors, program, reverse, wants, bindings.empty
    )
    names = ("dpart" if weight is None else "dx", "dweight", "dbias", "dh0")
    places = [(call.call, name) for name in names] + call.slots
    for (to, name), gradient, want in zip(places, out, wants, strict=True):
        if want:
            call.set(to, **{name: gradient})
    call.run("backward")
    return out


def _backward_fake(
    dstates: Tensor | None,
    dh: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    tensors: list[Tensor],
    program: list[int],
    reverse: bool,
    wants: list[bool],
    empty: Any = lambda shape, like: like.new_empty(shape),
) -> list[Tensor]:
    return [
        empty(t.shape, t) if want and t is not None else states.new_empty(0)
        for t, want in zip([x, weight, bias, h0, *tensors], wants, strict=True)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, h0, lengths, tensors, program, reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.program, ctx.reverse = program, reverse
    optional = [weight, bias, h0, lengths]
    ctx.present = [t is not None for t in optional]
    ctx.save_for_backward(x, output[0], *[t for t in optional if t is not None], *tensors)


def _backward(
    ctx: Any, dstates: Tensor | None, dh: Tensor | None
) -> tuple[Tensor | list[Tensor | None] | None, ...]:
    x, states, *saved = ctx.saved_tensors
    weight, bias, h0, lengths = (saved.pop(0) if there else None for there in ctx.present)
    needs = ctx.needs_input_grad
    wants = [*needs[:4], *needs[5]]
    if dstates is None and dh is None:
        out: list[Tensor | None] = [None] * len(wants)
    elif torch.is_grad_enabled():
        # The gradient is itself to be differentiated: take it through the reference, which can be.
        stages = from_program(saved, ctx.program)
        results = chain_scan_reference(x, weight, stages, bias, h0, lengths, reverse=ctx.reverse)
        out = differentiable_gradients(results, (dstates, dh), [x, weight, bias, h0, *saved], wants)
    else:
        found = torch.ops.kru.chain_scan_backward(
            dstates, dh, x, weight, bias, h0, lengths, states, saved, ctx.program, ctx.reverse, wants
        )
        out = [gradient if want else None for gradient, want in zip(found, wants, strict=True)]
    # torch takes an empty program for a list of tensors, and expects a list of as many gradients.
    return *out[:4], None, out[4:], None if ctx.program else [], None


_INPUTS = "Tensor x, Tensor? weight, Tensor? bias, Tensor? h0, Tensor? lengths"
register(
    f"chain_scan({_INPUTS}, Tensor[] tensors, int[] program, bool reverse) -> (Tensor, Tensor)",
    _forward_op,
    _forward_fake,
    _backward,
    _setup_context,
)
register(
    f"chain_scan_backward(Tensor? dstates, Tensor? dh, {_INPUTS}, Tensor states, Tensor[] tensors, int[] program, "
    "bool reverse, bool[] wants) -> Tensor[]",
    _backward_op,
    _backward_fake,
)
