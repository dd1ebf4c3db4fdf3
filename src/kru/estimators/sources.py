"""From a file to the estimator that fits it, and to the data in the form that the estimator takes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kru.estimators.columns import Columns
from kru.estimators.data import CASE_COLUMNS, TIME_COLUMNS, case_arrays
from kru.estimators.files import Data, read, read_frame, row_number
from kru.sound import SoundFeatures

Kind = Literal["classifier", "regressor", "forecaster", "text"]
TEXT = (".txt", ".text", ".md")
"""Endings of files that are taken for text."""
TABLES = (".csv", ".parquet")
"""Endings of files with columns."""


class Guess(NamedTuple):
    """The kind of estimator that a file seems to ask for, and why, for people."""

    kind: Kind
    reason: str


def guess_kind(path: str | Path, columns: Columns) -> Guess:
    """What to fit to a file: labels are classified, numbers predicted, series without a target forecast."""
    path = Path(path)
    if path.suffix.lower() in TEXT:
        return Guess("text", f"{path.name} is text")
    if path.suffix.lower() in TABLES and path.is_file():
        if columns.target is None:
            return Guess("forecaster", "no target is given")
        names = read_frame(path).columns
        if _has(names, columns.time, TIME_COLUMNS) and not _has(names, columns.case, CASE_COLUMNS):
            return Guess("forecaster", "it has times and no cases")
    data = read(path, **_reading(columns))
    if data.y is None:
        raise ValueError(f"{path}: expected targets, got none; --as forecaster forecasts series")
    different = np.unique(data.y)
    if len(different) == 1:
        return Guess(
            "classifier", f"all of its targets are {different.tolist()[0]!r}, so there is nothing to learn"
        )
    if different.dtype.kind not in "iuf":
        return Guess("classifier", f"its targets are {len(different)} labels")
    if (different == np.round(different)).all() and len(different) <= max(2, len(data.y) // 2):
        return Guess("classifier", f"its targets are {len(different)} different whole numbers")
    return Guess("regressor", "its targets are numbers")


def read_labelled(
    path: str | Path, columns: Columns, *, missing: str, numbers: bool = False
) -> tuple[Data, Columns]:
    """Sequences with targets, for a fit or a score, and the columns that were read.

    Args:
        missing: what missing values are, see `KRUClassifier`.
        numbers: whether targets have to be numbers.
    """
    data = read(path, **_reading(columns))
    if data.y is None:
        advice = "; --target names their column" if Path(path).suffix.lower() in TABLES else ""
        raise ValueError(f"{path}: expected targets, got none{advice}")
    if numbers and data.y.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: case {data.names[0]}: expected a number as target, got {data.y.tolist()[0]!r}"
        )
    if data.y.dtype.kind == "f" and not np.isfinite(data.y).all():
        bad = int(np.flatnonzero(~np.isfinite(data.y))[0])
        raise ValueError(f"{path}: case {data.names[bad]}: expected a finite target, got {data.y[bad]}")
    return _checked(Path(path), data, missing), replace(columns, channels=data.channels)


def read_unlabelled(path: str | Path, columns: Columns, *, missing: str) -> Data:
    """Sequences for a prediction; targets that the file has are not looked at."""
    return _checked(Path(path), read(path, **_reading(columns), needs_target=False), missing)


def blocks(data: Data, size: int) -> Iterator[tuple[list[str], list[NDArray[np.float64]]]]:
    """Names and sequences (channels, time), `size` cases at a time."""
    _, arrays = case_arrays(data.X, missing="mask")
    for first in range(0, len(arrays), size):
        yield data.names[first : first + size], arrays[first : first + size]


def expect_sounds(path: str | Path, data: Data, features: SoundFeatures | None) -> None:
    """Raise for sounds that these features cannot be computed of: another rate, or shorter than one window."""
    if features is None:
        return
    if data.rate is None:
        raise ValueError(f"{path}: expected a folder of WAV files, whose {features.kind} the model reads")
    if data.rate != features.rate:
        raise ValueError(f"{path}: expected sounds of {features.rate} Hz as in the fit, got {data.rate} Hz")
    for name, samples in zip(data.names, data.X, strict=True):
        if samples.shape[1] < features.window:
            raise ValueError(
                f"{Path(path) / name}: expected at least {features.window} samples, one window, got "
                f"{samples.shape[1]}; --features raw reads sounds of any length"
            )


def _has(names: Any, given: str | None, known: tuple[str, ...]) -> bool:
    return given in names or any(name in names for name in known)


def _reading(columns: Columns) -> dict[str, Any]:
    return {
        "target": columns.target,
        "case": columns.case,
        "time": columns.time,
        "channels": columns.channels,
        "label_pattern": columns.label_pattern,
    }


def _checked(path: Path, data: Data, missing: str) -> Data:
    """The data, in which every value can be used; a table of one channel as (cases, 1, time)."""
    if data.channels:
        _expect_known(path, data, missing)
    try:
        _, arrays = case_arrays(data.X, missing="mask")
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix('X: ')}") from error
    if not data.channels:
        _expect_known_cases(path, arrays, data.names, missing)
    X = data.X
    if isinstance(X, np.ndarray) and X.ndim == 2:
        X = X[:, None]
    return data._replace(X=X)


def _expect_known(path: Path, data: Data, missing: str) -> None:
    """Raise for the first row of a long table with a value that cannot be used."""
    values = data.X[list(data.channels)].to_numpy()
    bad = np.isinf(values) if missing == "mask" else ~np.isfinite(values)
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise ValueError(
            f"{path}: row {row_number(path, row)}, case {data.X['case'].iloc[row]}, column "
            f"{data.channels[column]!r}: expected {_unusable(values[row, column])}"
        )


def _expect_known_cases(
    path: Path, arrays: list[NDArray[np.float64]], names: list[str], missing: str
) -> None:
    for name, values in zip(names, arrays, strict=True):
        bad = np.isinf(values) if missing == "mask" else ~np.isfinite(values)
        if bad.any():
            time, channel = map(int, np.argwhere(bad.T)[0])
            raise ValueError(
                f"{path}: case {name}, channel {channel}, time {time}: expected {_unusable(values[channel, time])}"
            )


def _unusable(value: float) -> str:
    if np.isnan(value):
        return "a number, got nothing; --missing mask accepts missing values"
    return f"a finite number, got {value}"
