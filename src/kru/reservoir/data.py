"""Sequences as people have them, brought to one form: padded, time first, with lengths."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cases:
    """values (T, B, D), zero after the end of a sequence, and lengths (B,)."""

    values: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)

    def real(self) -> NDArray[np.bool_]:
        """Which steps belong to a sequence, (T, B)."""
        steps: NDArray[np.bool_] = np.arange(len(self.values))[:, None] < self.lengths
        return steps


def read_cases(X: Any, *, name: str = "X") -> Cases:
    """An array (cases, channels, time) or (cases, time), or a list of arrays (channels, time) or (time,)."""
    if isinstance(X, list | tuple) and any(np.ndim(case) > 0 for case in X):
        arrays = [_case(case, f"{name}[{index}]") for index, case in enumerate(X)]
    else:
        whole = np.asarray(X, dtype=np.float64)
        if whole.ndim not in (2, 3):
            raise ValueError(
                f"{name}: expected (cases, channels, time) or (cases, time), got shape {whole.shape}"
            )
        arrays = list(whole[:, None] if whole.ndim == 2 else whole)
    if not arrays:
        raise ValueError(f"{name}: expected at least one case, got none")
    for index, array in enumerate(arrays):
        if array.shape[0] != arrays[0].shape[0]:
            raise ValueError(
                f"{name}: expected {arrays[0].shape[0]} channels in every case, got {array.shape[0]} in case {index}"
            )
        if 0 in array.shape:
            raise ValueError(
                f"{name}: expected at least one channel and step, got {array.shape} in case {index}"
            )
        if not np.isfinite(array).all():
            channel, step = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(
                f"{name}: expected finite values, got {array[channel, step]} in case {index}, channel {channel}, "
                f"time {step}"
            )
    lengths = np.array([array.shape[1] for array in arrays], dtype=np.int64)
    values = np.zeros((int(lengths.max()), len(arrays), arrays[0].shape[0]))
    for column, array in enumerate(arrays):
        values[: array.shape[1], column] = array.T
    return Cases(values, lengths)


def _case(case: Any, name: str) -> NDArray[np.float64]:
    array = np.asarray(case, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name}: expected (channels, time) or (time,), got shape {array.shape}")
    return array[None] if array.ndim == 1 else array
