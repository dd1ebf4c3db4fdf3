"""Series from files, for a forecaster: tables with a row for each time, npz and ts."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kru.estimators.columns import Columns
from kru.estimators.data import CASE_COLUMNS, TIME_COLUMNS
from kru.estimators.files import expect_numbers, read, read_frame, row_number

Values = NDArray[np.float64]


class SeriesData(NamedTuple):
    """Series, for `KRUForecaster`.

    Attributes:
        y: a list of series (time,).
        X: for each series its exogenous inputs (channels, time and what is known of the future), or None.
        names: what the series are called.
        target: the column that they come from; None for files without columns.
    """

    y: list[Values]
    X: list[Values] | None
    names: list[str]
    target: str | None


def read_series_file(path: str | Path, columns: Columns) -> SeriesData:
    """Series in a file.

    A table has a row for each time, which a column of times puts in order if there is one, and a column with the
    values, `columns.target`. A column of cases makes several series. Rows at the end whose value is empty are the
    future, of which the exogenous columns are known.

    Raises:
        ValueError: one line that says which file and row, what came and what was expected.
    """
    path = Path(path)
    if path.suffix.lower() in (".csv", ".parquet") and path.is_file():
        return _table(path, columns)
    if columns.exogenous:
        raise ValueError(f"{path}: expected a CSV or Parquet file for exogenous columns, got another")
    data = read(path, needs_target=False)
    series = []
    for name, case in zip(data.names, data.X, strict=True):
        values = np.atleast_2d(np.asarray(case, dtype=np.float64))
        if len(values) != 1:
            raise ValueError(
                f"{path}: case {name}: expected one channel to forecast, got {len(values)} channels"
            )
        bad = np.flatnonzero(~np.isfinite(values[0]))
        if len(bad):
            raise ValueError(
                f"{path}: case {name}, time {bad[0]}: expected a number, got {values[0, bad[0]]}"
            )
        series.append(values[0])
    return SeriesData(series, None, data.names, None)


def _table(path: Path, columns: Columns) -> SeriesData:
    frame = read_frame(path)
    found = list(frame.columns)
    case = columns.case or next((name for name in CASE_COLUMNS if name in found), None)
    time = columns.time or next((name for name in TIME_COLUMNS if name in found), None)
    target = columns.target
    if target is None:
        others = [name for name in found if name not in (case, time, *columns.exogenous)]
        if len(others) != 1:
            raise ValueError(
                f"{path}: expected one column to forecast besides case and time, or --target, got {', '.join(others)}"
            )
        [target] = others
    for name in (target, case, time, *columns.exogenous):
        if name is not None and name not in found:
            raise ValueError(f"{path}: expected a column {name!r}, got {', '.join(found)}")
    expect_numbers(path, frame, [target, *columns.exogenous])
    frame["row"] = [row_number(path, index) for index in range(len(frame))]
    order = None if time is None else _times(path, frame, time)
    groups: list[tuple[Any, Any]] = (
        [(path.stem, frame)] if case is None else list(frame.groupby(case, sort=False))
    )
    series, exogenous = [], []
    for _, group in groups:
        if order is not None:
            group = group.loc[order.loc[group.index].sort_values(kind="stable").index]
        values = group[target].to_numpy()
        known = np.flatnonzero(np.isfinite(values))
        length = int(known[-1]) + 1 if len(known) else 0
        if len(known) < max(length, 1):
            bad = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(
                f"{path}: row {group['row'].iloc[bad]}, column {target!r}: expected a number, got nothing"
            )
        series.append(values[:length])
        inputs = group[list(columns.exogenous)].to_numpy().T
        if not np.isfinite(inputs).all():
            channel, bad = map(int, np.argwhere(~np.isfinite(inputs))[0])
            raise ValueError(
                f"{path}: row {group['row'].iloc[bad]}, column {columns.exogenous[channel]!r}: expected a number, got "
                "nothing"
            )
        exogenous.append(inputs)
    names = [str(name) for name, _ in groups]
    return SeriesData(series, exogenous if columns.exogenous else None, names, target)


def _times(path: Path, frame: Any, time: str) -> Any:
    """The column of times as numbers or dates, which sort as time does."""
    import pandas as pd

    if frame[time].dtype.kind in "iufM":
        return frame[time]
    dates = pd.to_datetime(frame[time], errors="coerce")
    wrong = np.flatnonzero(dates.isna())
    if len(wrong):
        raise ValueError(
            f"{path}: row {row_number(path, wrong[0])}, column {time!r}: expected a number or a date, got "
            f"{frame[time].iloc[wrong[0]]!r}"
        )
    return dates
