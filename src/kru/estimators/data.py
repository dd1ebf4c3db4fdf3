"""The forms in which people have sequences, brought to one: padded, time first, with lengths."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CASE_COLUMNS = ("case", "case_id")
TIME_COLUMNS = ("time", "time_id")
MISSING = ("error", "mask")


@dataclass(frozen=True)
class Cases:
    """Sequences of equal or unequal length.

    Attributes:
        values: float64 (T, B, D), zero after the end of a sequence; NaN where a value is missing.
        lengths: int64 (B,).
        names: what the cases are called in a long frame, in the order of B; None elsewhere.
    """

    values: NDArray[np.float64]
    lengths: NDArray[np.int64]
    names: list[Hashable] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def channels(self) -> int:
        """D."""
        return int(self.values.shape[2])

    def real(self) -> NDArray[np.bool_]:
        """Which steps belong to a sequence, (T, B)."""
        steps: NDArray[np.bool_] = np.arange(len(self.values))[:, None] < self.lengths
        return steps


def is_table(X: Any) -> bool:
    """Whether X is 2-D data of scikit-learn's kind, (cases, time) of one channel.

    Lists of lists of equal length are; arrays with three dimensions, lists of arrays and frames in long form are not.

    >>> is_table(np.zeros((3, 10))), is_table([[1, 2], [3, 4]])
    (True, True)
    >>> is_table(np.zeros((3, 2, 10))), is_table([np.zeros(10), np.zeros(7)]), is_table([[1, 2], [3]])
    (False, False, False)
    """
    if _is_frame(X):
        return not _is_long(X)
    if isinstance(X, list | tuple) or _is_array_of_objects(X):
        if len(X) == 0 or any(hasattr(case, "shape") and np.ndim(case) > 0 for case in X):
            return len(X) == 0
        if not all(isinstance(case, list | tuple) for case in X):
            return True  # scikit-learn's own check says what is wrong with it
        return len({len(case) for case in X}) == 1 and not any(
            isinstance(entry, list | tuple) for case in X for entry in case
        )
    return getattr(X, "ndim", 2) != 3


def read_cases(X: Any, *, missing: str = "error", name: str = "X") -> Cases:
    """Sequences of real values in any of these forms:

    - an array (cases, channels, time), or (cases, time) of one channel;
    - a list of arrays (channels, time), or (time,) of one channel, of unequal lengths;
    - a pandas frame in long form: columns ``case`` and ``time`` (or an index of these two levels), all others are
      channels. Cases are in the order in which they first appear, the steps of each are sorted by time.

    Args:
        missing: "error": a NaN is one. "mask": it stays, for `Scaling` to fill in and to mark.

    >>> cases = read_cases([np.ones((2, 5)), np.ones((2, 3))])
    >>> cases.values.shape, cases.lengths.tolist()
    ((5, 2, 2), [5, 3])
    >>> read_cases([np.ones((2, 5)), np.ones((3, 3))])
    Traceback (most recent call last):
    ...
    ValueError: X: expected 2 channels in every case, got 3 in case 1
    """
    names, arrays = case_arrays(X, missing=missing, name=name)
    return stack(arrays, names)


def case_arrays(
    X: Any, *, missing: str = "error", name: str = "X"
) -> tuple[list[Hashable] | None, list[NDArray[np.float64]]]:
    """The cases as `read_cases` takes them, without padding: names of a long frame, and arrays (channels, time)."""
    if missing not in MISSING:
        raise ValueError(f"missing: expected one of {', '.join(MISSING)}, got {missing!r}")
    names: list[Hashable] | None = None
    if _is_frame(X) and _is_long(X):
        names, arrays = _long(X, name)
    elif isinstance(X, list | tuple) or _is_array_of_objects(X):
        arrays = [_array(case, f"{name}[{index}]") for index, case in enumerate(X)]
    else:
        whole = _numbers(X, name)
        if whole.ndim not in (2, 3):
            raise ValueError(
                f"{name}: expected (cases, channels, time) or (cases, time), got shape {whole.shape}"
            )
        arrays = list(whole[:, None] if whole.ndim == 2 else whole)
    if not arrays:
        raise ValueError(f"{name}: expected at least one case, got none")
    _check(arrays, names, missing, name)
    return names, arrays


def stack(arrays: Sequence[NDArray[np.float64]], names: list[Hashable] | None = None) -> Cases:
    """Arrays (channels, time) as cases, padded to the longest."""
    lengths = np.array([array.shape[1] for array in arrays], dtype=np.int64)
    values = np.zeros((int(lengths.max()), len(arrays), arrays[0].shape[0]))
    for column, array in enumerate(arrays):
        values[: array.shape[1], column] = array.T
    return Cases(values, lengths, names)


def join(first: Cases, second: Cases) -> Cases:
    """The cases of both, one after the other."""
    longest = max(len(first.values), len(second.values))
    padded = [np.pad(c.values, ((0, longest - len(c.values)), (0, 0), (0, 0))) for c in (first, second)]
    return Cases(np.concatenate(padded, axis=1), np.concatenate([first.lengths, second.lengths]))


def read_symbols(X: Any, *, name: str = "X") -> list[list[Hashable]]:
    """Sequences of symbols: strings (whose symbols are characters), or sequences of integers or strings.

    >>> read_symbols(["ab", "c"]), read_symbols([[3, 1], np.array([2])])
    ([['a', 'b'], ['c']], [[3, 1], [2]])
    """
    if isinstance(X, str | bytes):
        raise ValueError(f"{name}: expected a list of sequences of symbols, got one {type(X).__name__}")
    sequences: list[list[Hashable]] = []
    for index, case in enumerate(X):
        if isinstance(case, str | bytes):
            sequence: list[Hashable] = list(case)
        elif np.ndim(case) == 1:
            sequence = [entry.item() if isinstance(entry, np.generic) else entry for entry in case]
        else:
            raise ValueError(
                f"{name}: expected one sequence of symbols in each case, got shape {np.shape(case)} in case {index}"
            )
        for step, symbol in enumerate(sequence):
            if not isinstance(symbol, int | str) or isinstance(symbol, bool):
                raise ValueError(
                    f"{name}: expected integers or strings as symbols, got {symbol!r} in case {index}, step {step}"
                )
        if not sequence:
            raise ValueError(f"{name}: expected at least one step in every case, got none in case {index}")
        sequences.append(sequence)
    if not sequences:
        raise ValueError(f"{name}: expected at least one case, got none")
    return sequences


def align(y: Any, cases: Cases) -> Any:
    """The targets in the order of the cases: a Series indexed by the names of a long frame's cases is sorted so."""
    if cases.names is None or not hasattr(y, "index") or not hasattr(y, "loc"):
        return y
    if not y.index.is_unique or set(y.index) != set(cases.names):
        return y
    return y.loc[cases.names]


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "iloc")


def _is_array_of_objects(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 1


def _is_long(X: Any) -> bool:
    if getattr(X.index, "nlevels", 1) == 2:
        return True
    return any(c in X.columns for c in CASE_COLUMNS) and any(t in X.columns for t in TIME_COLUMNS)


def _long(X: Any, name: str) -> tuple[list[Hashable], list[NDArray[np.float64]]]:
    if getattr(X.index, "nlevels", 1) == 2:
        case, time = X.index.get_level_values(0), X.index.get_level_values(1)
        channels = X
    else:
        [case_column] = [c for c in CASE_COLUMNS if c in X.columns][:1]
        [time_column] = [t for t in TIME_COLUMNS if t in X.columns][:1]
        case, time = X[case_column], X[time_column]
        channels = X.drop(columns=[case_column, time_column])
    if channels.shape[1] == 0:
        raise ValueError(f"{name}: expected at least one column besides case and time, got none")
    for column in channels.columns:
        if channels[column].dtype.kind not in "biuf":
            raise ValueError(
                f"{name}: expected numbers in column {column!r}, got values of type {channels[column].dtype}"
            )
    values = channels.to_numpy(dtype=np.float64, na_value=np.nan)
    case, time = np.asarray(case), np.asarray(time)
    names, starts, groups = np.unique(case, return_index=True, return_inverse=True)
    # Cases in the order in which they appear, and the rows of each by time.
    order = np.lexsort((time, starts[groups]))
    twice = np.flatnonzero((groups[order][1:] == groups[order][:-1]) & (time[order][1:] == time[order][:-1]))
    if len(twice):
        row = order[twice[0]]
        raise ValueError(
            f"{name}: expected one row for each time, got two of time {time[row]} in case {case[row]}"
        )
    present = np.argsort(starts, kind="stable")
    ends = np.bincount(groups)[present].cumsum()
    arrays = [rows.T for rows in np.split(values[order], ends[:-1])]
    return names[present].tolist(), arrays


def _numbers(X: Any, name: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(X)
        if array.dtype.kind == "c":
            raise ValueError(f"{name}: expected real numbers, got complex ones. Complex data not supported")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        if "Complex data" in str(error):
            raise
        raise ValueError(f"{name}: expected an array of numbers ({error})") from error


def _array(case: Any, name: str) -> NDArray[np.float64]:
    array = _numbers(case, name)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name}: expected (channels, time) or (time,), got shape {array.shape}")
    return array[None] if array.ndim == 1 else array


def _check(
    arrays: Sequence[NDArray[np.float64]], names: list[Hashable] | None, missing: str, name: str
) -> None:
    channels = arrays[0].shape[0]
    for index, array in enumerate(arrays):
        case = f"case {names[index] if names else index}"
        if array.shape[0] != channels:
            raise ValueError(
                f"{name}: expected {channels} channels in every case, got {array.shape[0]} in {case}"
            )
        if array.shape[0] == 0:
            raise ValueError(f"{name}: expected at least one channel, got none in {case}")
        if array.shape[1] == 0:
            raise ValueError(f"{name}: expected at least one time step in every case, got none in {case}")
        bad = np.isinf(array) if missing == "mask" else ~np.isfinite(array)
        if bad.any():
            channel, step = np.argwhere(bad)[0]
            what = "NaN" if np.isnan(array[channel, step]) else "infinity"
            advice = "; missing='mask' accepts NaN" if what == "NaN" else ""
            raise ValueError(
                f"{name}: expected finite values, got {what} in {case}, channel {channel}, time {step}{advice}"
            )
