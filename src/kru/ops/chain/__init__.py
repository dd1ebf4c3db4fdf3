"""The recurrence with a recurrent matrix that is a chain of stages."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.ops import bindings
from kru.ops.chain import native  # noqa: F401 (registers the operator)
from kru.ops.chain.reference import chain_scan_reference
from kru.ops.chain.stages import Stage, to_program
from kru.ops.scan.checks import check_scan_values
from kru.ops.scan.contract import input_kind
from kru.ops.scan.reference import input_part


def runs_native(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `chain_scan` runs on the native kernels; the dense matrix is faster than its reference."""
    there = bindings.library is not None and device.type == "cpu" and dtype in bindings.REAL_DTYPES
    return there and (torch.compiler.is_compiling() or not bindings.transforming())


def chain_scan(
    x: Tensor,
    weight: Tensor | None,
    stages: Sequence[Stage],
    *,
    bias: Tensor | None = None,
    h0: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """h_t = modReLU(W h_{t-1} + U x_t) in the complex field, W unitary and a product of stages.

    The result is that of `kru.ops.scan` with the dense W as its only factor, but the cost is the cost of the stages
    instead of N^2.

    Args:
        x: inputs (T, B, D), or integer symbols (T, B) below D. With ``weight=None``: U x_t itself, (T, B, 2N), real
            parts then imaginary parts.
        weight: the input map U, (2N, D).
        stages: what W is made of, the first one applied first.
        bias: modReLU's b (N,), None for zeros.
        h0: (B, 2N), None for zeros.
        lengths, reverse: see `kru.ops.scan`.

    Returns:
        all states (T, B, 2N) and the last one (B, 2N).
    """
    for place, stage in enumerate(stages):
        if not all(isinstance(tensor, Tensor) for tensor in stage.tensors):
            kinds = ", ".join(type(tensor).__name__ for tensor in stage.tensors)
            raise TypeError(f"stages[{place}]: expected tensors, got {kinds}")
    dtype = x.dtype if weight is None else weight.dtype
    if runs_native(x.device, dtype):
        if weight is not None and input_kind(x, weight) == bindings.PART:
            if not torch.compiler.is_compiling():
                bindings.check_storage("x", x)
                bindings.check_storage("weight", weight)
            # Autocast would make the part's dtype another one than the kernel's.
            with torch.autocast("cpu", enabled=False):
                x, weight = input_part(x, weight, None), None
        tensors, program = to_program(stages)
        states, last = torch.ops.kru.chain_scan(x, weight, bias, h0, lengths, tensors, program, reverse)
        return states, last
    if not torch.compiler.is_compiling():
        named = {"x": x, "weight": weight, "bias": bias, "h0": h0, "lengths": lengths}
        for name, given in {**named, "stages": [stage.tensors for stage in stages]}.items():
            bindings.check_storage(name, given)
        check_scan_values(x, weight, lengths)
    return chain_scan_reference(x, weight, stages, bias, h0, lengths, reverse=reverse)
