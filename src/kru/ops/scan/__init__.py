"""The recurrence over time: arguments checked here, computed by native or GPU kernels or the fallback."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kru.ops import bindings, gpu
from kru.ops.scan import native  # noqa: F401 (registers the operator)
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.checks import check_scan_arguments, check_scan_types, check_scan_values
from kru.ops.scan.fallback import scan_fallback
from kru.ops.scan.lean import MEMORY, lean_scan, steps_between


class ScanResult(NamedTuple):
    """What `scan` returns: all states (T, B, S), the last h (B, S) and, for the LSTM, the last c (B, S).

    The states are None with ``need_states=False``.
    """

    states: Tensor | None
    h: Tensor
    c: Tensor | None


def scan(
    x: Tensor,
    weight: Tensor | None,
    factors: Sequence[Tensor],
    *,
    cell: str = "elman",
    nonlinearity: str = "modrelu",
    field: str = "complex",
    bias: Tensor | None = None,
    recurrent_bias: Tensor | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    lengths: Tensor | None = None,
    leak: Tensor | float | None = None,
    reset: Tensor | None = None,
    initial: Tensor | None = None,
    reverse: bool = False,
    memory: str = "full",
    need_states: bool = True,
) -> ScanResult:
    """Run a recurrent cell over time, its recurrent matrix (one per gate) a Kronecker product ⊗_f W_f or a sum of such.

    With N = prod_f P_f units and a_t = U x_t + bias::

        elman  h_t = sigma(W h_{t-1} + a_t), or with a leak
               h_t = (1 - leak) h_{t-1} + leak sigma(W h_{t-1} + a_t)
        lstm   i, f, o = sigmoid(W^i h_{t-1} + a^i_t), ...   g = tanh(W^g h_{t-1} + a^g_t)
               c_t = f c_{t-1} + i g                         h_t = o tanh(c_t)
        gru    r, z = sigmoid(W^r h_{t-1} + a^r_t), ...      n = tanh(a^n_t + r (W^n h_{t-1} + recurrent_bias))
               h_t = (1 - z) n + z h_{t-1}

    Everything is a real tensor. In the complex field a state has S = 2N values, the N real parts followed by the N
    imaginary parts; in the real field S = N. The number of gates G is 1 (elman), 4 (lstm: i, f, g, o) or 3 (gru:
    r, z, n); lstm and gru exist in the real field.

    Args:
        x: inputs (T, B, D), or integer symbols (T, B) below D, which pick columns of `weight` as if they were one-hot
            vectors. With ``weight=None``: the input part a_t itself, (T, B, G * S).
        weight: the input map U, (G * S, D).
        factors: any number of factors with prod P_f = prod Q_f = N. Shapes: elman real (P, Q), elman complex
            (2, P, Q) with real part first, lstm (4, P, Q), gru (3, P, Q). With one more leading dimension R, the same
            in all of them, W is the sum of R products; product r has the factors factors[f][r].
        nonlinearity: of the elman cell: "modrelu", "tanh", "relu", "leaky_relu" (slope 0.1 below zero) or "identity";
            all but the first act on real and imaginary parts separately.
        bias: (G * S,); with modReLU the bias b (N,) inside the nonlinearity instead. None for zeros.
        recurrent_bias: (N,), gru only.
        h0, c0: initial states (B, S); None for zeros.
        lengths: integers (B,), 0 <= length <= T, in any order: sequence b ends after lengths[b] steps. States beyond
            are zero, and the last state is that after the sequence's own last step.
        leak: of the elman cell, one number in (0, 1] or one per unit, (N,), the same for real and imaginary parts; None
            for 1. The values of a tensor are not checked.
        reset: a mask (T, B), True at the first step of each new sequence (an episode, a document) that follows another
            one in the same row. The results are those of separate calls with the pieces: at such a step the state
            before it is `initial`, and c is zero. In reverse it is the step before the first of a sequence in time
            that starts anew. Beyond the end of a row (`lengths`) the mask is ignored.
        initial: (S,), the state h after a reset, None for zeros. h0 is where the rows start, unless the mask is True
            at their first step.
        reverse: run from each sequence's last step to its first. states[t] stays aligned with x[t].
        memory: "full" keeps for the backward pass what every step needs: the states, for lstm and gru the gates and c
            as well. "lean" keeps h (and c) before every k-th step and computes the steps in between again, with k
            about sqrt(T) (`kru.ops.scan.lean.steps_between`). Gradients are the same up to rounding. GPUs and the
            fallback without native kernels keep everything.
        need_states: False if only the last state is wanted. With "lean", memory then grows like T / k instead of T.
    """
    if memory not in MEMORY:
        raise ValueError(f"memory: expected {' or '.join(MEMORY)}, got {memory!r}")
    if field not in ("real", "complex"):
        raise ValueError(f"field: expected real or complex, got {field!r}")
    arguments = ScanArguments(
        x,
        weight,
        factors,
        bias,
        recurrent_bias,
        h0,
        c0,
        lengths,
        _leak(leak, factors),
        reset,
        initial,
        cell,
        nonlinearity,
        field == "complex",
        reverse,
    )
    check_scan_types(arguments)
    fast = len(factors) and (
        (bindings.library is not None and x.is_cpu and factors[0].dtype in bindings.REAL_DTYPES)
        or (x.device == factors[0].device and gpu.runs(factors[0]))
    )
    if fast and (torch.compiler.is_compiling() or not bindings.transforming()):
        keep = torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in arguments.differentiable
        )
        lean = x.is_cpu and not gpu.ON_CPU and (memory == "lean" or not (keep or need_states))
        if lean and arguments.x.dim() > 1 and arguments.steps:
            every = steps_between(arguments.steps, arguments.state, factors[0].itemsize)
            out, h, last_c = lean_scan(arguments._replace(every=every, need_states=need_states), keep)
        else:
            out, h, last_c, _, _ = torch.ops.kru.scan(x, weight, list(factors), *arguments[3:], keep)
        return ScanResult(out if need_states else None, h, last_c if arguments.has_memory else None)
    check_scan_arguments(arguments)
    if not torch.compiler.is_compiling():
        for name, tensor in arguments.tensors.items():
            bindings.check_storage(name, tensor)
        check_scan_values(x, weight, lengths)
    states, h, c = scan_fallback(arguments)
    return ScanResult(states if need_states else None, h, c)


def _leak(leak: Tensor | float | None, factors: Sequence[Tensor]) -> Tensor | None:
    """One number for each unit."""
    if leak is None or (isinstance(leak, Tensor) and leak.dim()):
        return leak
    units = 1
    for factor in factors:
        units *= factor.shape[-2]
    if isinstance(leak, Tensor):
        return leak.expand(units)
    if isinstance(leak, bool) or not isinstance(leak, int | float):
        raise TypeError(f"leak: expected a number or a tensor, got {type(leak).__name__}")
    if not 0 < leak <= 1:
        raise ValueError(f"leak: expected a number in (0, 1], got {leak}")
    return torch.full((units,), float(leak), dtype=factors[0].dtype, device=factors[0].device)
