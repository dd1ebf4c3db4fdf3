"""The recurrence of a discretised differential equation over time: arguments checked here."""

import torch
from torch import Tensor

from kru.ops import bindings
from kru.ops.euler.gradient import Euler
from kru.ops.euler.reference import euler_scan_reference
from kru.ops.scan.checks import check_reset


def euler_scan(
    part: Tensor,
    matrix: Tensor,
    *,
    step: float,
    gated: bool = False,
    h0: Tensor | None = None,
    lengths: Tensor | None = None,
    reset: Tensor | None = None,
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
        reset: (T, B), True at the first step of each new sequence, whose state before it is zero; see `kru.ops.scan`.
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
    check_reset(reset, len(part), part.shape[1], part.device)
    # Compilers and the transforms of torch.func follow the operations of the reference.
    if torch.compiler.is_compiling() or bindings.transforming():
        return euler_scan_reference(
            part, matrix, h0, lengths, reset=reset, step=step, gated=gated, reverse=reverse
        )
    states, h = Euler.apply(  # type: ignore[no-untyped-call]
        part, matrix, h0, lengths, reset, step, gated, reverse
    )
    return states, h
