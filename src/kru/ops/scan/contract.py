"""What the backends of the recurrence agree on: what is kept for the backward pass, and gradients of the input map."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from kru.ops import bindings
from kru.ops.scan.arguments import ScanArguments

SMALL_INPUT = 16
"""The native kernels multiply inputs of up to this many values; larger ones are one matrix product for all steps."""
SMALL_TABLE = 1 << 21
"""Symbols are looked up inside the kernel while the input map has at most this many entries: each thread keeps a
gradient of that size."""


class Gradients(NamedTuple):
    """The gradients that arrive at the results, None where nothing depends on one."""

    dstates: Tensor | None
    dh: Tensor | None
    dc: Tensor | None


class Kept(NamedTuple):
    """What the backward pass needs besides the arguments.

    All states, the input part or the gates in `reserve`, and the cells. With `every`: no states, and in `reserve` and
    `cells` the states h and c before every so many steps.
    """

    states: Tensor
    reserve: Tensor
    cells: Tensor


def input_kind(x: Tensor, weight: Tensor | None) -> int:
    """How the input reaches the kernel: PART, a_t computed before, or DENSE or SYMBOLS, multiplied inside."""
    if weight is None:
        return bindings.PART
    if x.is_floating_point():
        return bindings.DENSE if 0 < x.shape[2] <= SMALL_INPUT else bindings.PART
    return bindings.SYMBOLS if 0 < weight.numel() <= SMALL_TABLE else bindings.PART


def result_shape(arguments: ScanArguments) -> tuple[int, ...]:
    """The shape of the states as a result; they are empty where nobody wants them."""
    return (arguments.steps, arguments.batch, arguments.state) if arguments.need_states else (0,)


def kept_shapes(arguments: ScanArguments) -> dict[str, tuple[int, ...]]:
    """Shapes of `Kept`. The reserve has the gates, or a_t where that is computed before the kernel and z is needed."""
    steps, batch, state = arguments.steps, arguments.batch, arguments.state
    if arguments.every:
        some = (arguments.kept, batch, state)
        return {"states": (0,), "reserve": some, "cells": some if arguments.has_memory else (0,)}
    reserve: tuple[int, ...] = (0,)
    if arguments.has_gates:
        reserve = (steps, batch, arguments.gates * state)
    elif keeps_part(arguments):
        reserve = (steps, batch, state)
    return {
        "states": (steps, batch, state),
        "reserve": reserve,
        "cells": (steps, batch, state) if arguments.has_gates else (0,),
    }


def keeps_part(arguments: ScanArguments) -> bool:
    """Whether a_t is kept for the backward pass: where it was computed before the kernel and z is needed again.

    With modReLU or a leak, the state does not always tell the derivative.
    """
    x, weight, inner = arguments.x, arguments.weight, arguments.has_inner_bias
    if (
        arguments.has_gates
        or arguments.every
        or not (inner or arguments.leak is not None)
        or input_kind(x, weight) != bindings.PART
    ):
        return False
    return weight is not None or (arguments.bias is not None and not inner)


def map_gradients(arguments: ScanArguments, dpart: Tensor, out: Mapping[str, Tensor]) -> None:
    """The gradients at x, weight and the outer bias that `out` has tensors for, from the gradient at a_t."""
    x, weight = arguments.x, arguments.weight
    rows = dpart.flatten(0, 1)
    if "bias" in out and not arguments.has_inner_bias:
        torch.sum(rows, 0, out=out["bias"])
    if weight is None:
        if "x" in out and out["x"] is not dpart:
            out["x"].copy_(dpart)
        return
    if "weight" in out:
        if x.is_floating_point():
            torch.mm(rows.t(), x.flatten(0, 1), out=out["weight"])
        else:
            table = rows.new_zeros(weight.shape[1], weight.shape[0])
            out["weight"].copy_(table.index_add_(0, x.flatten().to(torch.int64), rows).t())
    if "x" in out:
        torch.mm(rows, weight, out=out["x"].flatten(0, 1))
