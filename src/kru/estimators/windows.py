"""Series cut into windows: what a forecaster learns from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Model = Callable[[NDArray[np.float32]], Values]
"""From windows (context, N, D) to standardised forecasts (N, ahead)."""


def read_series(y: Any, name: str = "y") -> list[Values]:
    """One series (time,), several of equal length (series, time), or a list of series of unequal lengths."""
    if isinstance(y, list | tuple) and len(y) and np.ndim(y[0]) > 0:
        parts = [np.asarray(part) for part in y]
    else:
        array = np.asarray(y)
        parts = [array] if array.ndim == 1 else list(array)
    series = []
    for index, part in enumerate(parts):
        try:
            values = part.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: expected numbers in series {index} ({error})") from error
        if values.ndim != 1:
            raise ValueError(
                f"{name}: expected (time,) or (series, time), got shape {values.shape} in series {index}"
            )
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ValueError(
                f"{name}: expected finite values, got {values[bad[0]]} in series {index}, time {bad[0]}"
            )
        series.append(values)
    if not series:
        raise ValueError(f"{name}: expected at least one series, got none")
    return series


def read_exogenous(X: Any, series: int, name: str = "X") -> list[Values]:
    """What goes with each series: (channels, time) for one, or a list of them or (series, channels, time)."""
    parts = list(X) if isinstance(X, list | tuple) or np.ndim(X) == 3 else [X]
    arrays = [np.atleast_2d(np.asarray(part, dtype=np.float64)) for part in parts]
    if len(arrays) != series:
        raise ValueError(
            f"{name}: expected one array (channels, time) for each of {series} series, got {len(arrays)}"
        )
    for index, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[0] != arrays[0].shape[0]:
            raise ValueError(f"{name}: expected (channels, time) in series {index}, got shape {array.shape}")
        if not np.isfinite(array).all():
            channel, time = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(
                f"{name}: expected finite values, got {array[channel, time]} in series {index}, channel {channel}, "
                f"time {time}"
            )
    return arrays


@dataclass(frozen=True)
class Level:
    """How a window of a series is brought to a common scale: z = (y - base) / scale.

    The base is the window's last value where `relative`, which leaves a trend's steps and not its height; else the
    mean of the series.
    """

    mean: float
    scale: float
    relative: bool

    @staticmethod
    def of(values: Values, *, relative: bool) -> "Level":
        """Mean and deviation of a series; relative: the root mean square of its steps, times three."""
        scale = 3 * np.sqrt((np.diff(values) ** 2).mean()) if relative else values.std()
        return Level(float(values.mean()), float(scale) if scale > 0 else 1.0, relative)

    def base(self, window: Values) -> float:
        return float(window[-1]) if self.relative else self.mean


@dataclass(frozen=True)
class Windows:
    """Windows of all series.

    Attributes:
        inputs: (context, N, 1 + F * C): the standardised value, and the exogenous ones of the F steps that follow.
        targets: (N, F), standardised.
        bases: (N,), how far the base of each window is from the mean of its series, in units of the targets.
        scales: (N,), the units of the targets.
        series: (N,), the series that each window is from.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    bases: Values
    scales: Values
    series: NDArray[np.int64]


def cut(
    series: Sequence[Values],
    exogenous: Sequence[Values] | None,
    levels: Sequence[Level],
    context: int,
    ahead: int,
) -> Windows:
    """All windows of `context` values that `ahead` further ones follow."""
    columns: list[NDArray[np.float64]] = []
    targets, bases, scales, origins = [], [], [], []
    for index, (values, level) in enumerate(zip(series, levels, strict=True)):
        x = None if exogenous is None else exogenous[index]
        for last in range(context - 1, len(values) - ahead):
            window = values[last - context + 1 : last + 1]
            base = level.base(window)
            columns.append(column(window, x, last, level, ahead))
            targets.append((values[last + 1 : last + 1 + ahead] - base) / level.scale)
            bases.append((base - level.mean) / level.scale)
            scales.append(level.scale)
            origins.append(index)
    if not columns:
        raise ValueError(
            f"y: expected a series of at least {context + ahead} values, got at most {max(map(len, series))}"
        )
    return Windows(
        np.stack(columns, axis=1).astype(np.float32),
        np.array(targets, dtype=np.float32),
        np.array(bases),
        np.array(scales),
        np.array(origins, dtype=np.int64),
    )


def column(window: Values, x: Values | None, last: int, level: Level, ahead: int) -> Values:
    """One window as the network reads it, (context, 1 + ahead * C); its last value is at time `last`."""
    z = ((window - level.base(window)) / level.scale)[:, None]
    if x is None:
        return z
    steps = np.arange(last - len(window) + 1, last + 1)
    following = np.concatenate([x[:, steps + step].T for step in range(1, ahead + 1)], axis=1)
    return np.concatenate([z, following], axis=1)


def later(
    series: Sequence[Values],
    exogenous: Sequence[Values] | None,
    levels: Sequence[Level],
    ends: Sequence[int],
    context: int,
    ahead: int,
) -> Windows:
    """The windows whose `ahead` targets all lie after the ends."""
    parts = [values[max(0, end - context) :] for values, end in zip(series, ends, strict=True)]
    tails = None
    if exogenous is not None:
        tails = [x[:, max(0, end - context) :] for x, end in zip(exogenous, ends, strict=True)]
    return cut(parts, tails, levels, context, ahead)


def recursively(inputs: NDArray[np.float32], once: Model, horizon: int, *, relative: bool) -> Values:
    """Standardised forecasts of a model of one step, applied to its own forecasts, (N, horizon).

    Args:
        inputs: (context, N, 1 + horizon * C), see `Windows`.
        relative: whether values are relative to the last one, which every step moves.
    """
    channels = (inputs.shape[2] - 1) // horizon
    known = inputs[:, :, 1:].reshape(*inputs.shape[:2], horizon, channels)
    values = inputs[:, :, 0].astype(np.float64)
    offset = np.zeros(inputs.shape[1])
    forecasts = []
    for step in range(horizon):
        # Exogenous inputs of step h of the horizon, which every time of the window has h steps ahead.
        window = np.concatenate([values[:, :, None], known[:, :, step]], axis=2).astype(np.float32)
        following = once(window)[:, 0]
        forecasts.append(offset + following)
        values = np.concatenate([values[1:], following[None]])
        if relative:
            offset = offset + following
            values = values - following
    return np.stack(forecasts, axis=1)
