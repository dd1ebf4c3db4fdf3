"""The initial state as a caller gives it, checked and brought to one form. And the last state back."""

import torch
from torch import Tensor

from kru.ops.precision import autocasting

State = Tensor | tuple[Tensor, ...]
"""One tensor, or for the LSTM the pair (h, c)."""


def unpack_state(
    hx: State | None, names: tuple[str, ...], rows: int, batch: int | None, size: int, dtype: torch.dtype
) -> tuple[Tensor, ...] | None:
    """The state as a tuple of tensors (rows, B, S), one for each name; rows counts layers times directions.

    `batch` is None for unbatched input, whose state has no batch dimension.
    """
    if hx is None:
        return None
    if len(names) > 1:
        if not isinstance(hx, tuple | list) or len(hx) != len(names):
            raise TypeError(f"hx: expected a pair ({', '.join(names)}) of tensors, got {_describe(hx)}")
        named: dict[str, object] = {f"hx[{index}]": state for index, state in enumerate(hx)}
    else:
        named = {"hx": hx}
    states = tuple(_checked(name, state, rows, batch, size, dtype) for name, state in named.items())
    return states if batch is not None else tuple(state.unsqueeze(1) for state in states)


def repack_state(states: tuple[Tensor, ...], *, is_batched: bool) -> State:
    """The inverse of `unpack_state`."""
    if not is_batched:
        states = tuple(state.squeeze(1) for state in states)
    return states if len(states) > 1 else states[0]


def _checked(name: str, state: object, rows: int, batch: int | None, size: int, dtype: torch.dtype) -> Tensor:
    if not isinstance(state, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {_describe(state)}")
    shape = (rows, size) if batch is None else (rows, batch, size)
    if tuple(state.shape) != shape:
        form = (
            "unbatched input (layers * directions, S)"
            if batch is None
            else "batched input (layers * directions, B, S)"
        )
        raise RuntimeError(f"{name}: expected shape {shape} for {form}, got {tuple(state.shape)}")
    if not state.is_floating_point():
        raise TypeError(f"{name}: expected real floating point values, got {state.dtype}")
    if state.dtype != dtype and not autocasting(state.device.type):
        raise ValueError(f"{name}: expected the weights' dtype {dtype}, got {state.dtype}")
    return state


def _describe(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
