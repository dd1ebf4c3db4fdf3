"""What a forecaster's linear part is chosen by: forecasts of later blocks of its series."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kru.estimators.linear import candidates, features, ridge
from kru.estimators.windows import Level, Model, Values, Windows, cut, later, recursively

BLOCKS = (0.55, 0.7, 0.85, 1.0)
"""Parts of a series between which blocks lie; the linear part is fitted to what comes before each, and tried on it."""

Ends = Sequence[int]


@dataclass(frozen=True)
class Forecasting:
    """Series, and how they are forecast.

    Attributes:
        exogenous: standardised, (C, time) for each series; None for none.
        direct: one output for each step of the horizon, instead of one step after the other.
    """

    series: list[Values]
    exogenous: list[Values] | None
    context: int
    horizon: int
    direct: bool

    @property
    def ahead(self) -> int:
        """How many steps one application of the model forecasts."""
        return self.horizon if self.direct else 1

    def levels(self, ends: Ends, *, relative: bool) -> list[Level]:
        """Of the values before the ends."""
        return [Level.of(values, relative=relative) for values in self.before(ends)]

    def before(self, ends: Ends) -> list[Values]:
        return [values[:end] for values, end in zip(self.series, ends, strict=True)]

    def ahead_of(self, inputs: NDArray[np.float32], once: Model, *, relative: bool) -> Values:
        """Standardised forecasts for windows that `cut` made for the whole horizon, (N, horizon).

        Args:
            once: the model, of one step, or if `direct` of the horizon.
        """
        return once(inputs) if self.direct else recursively(inputs, once, self.horizon, relative=relative)

    def units(self, ends: Ends, windows: Windows) -> Values:
        """(N, 1): what a standardised error stands for, in deviations of its series before the end.

        In these units, of several series those with large values do not drown the others.
        """
        deviations = np.array([max(values.std(), 1e-300) for values in self.before(ends)])
        return np.asarray((windows.scales / deviations[windows.series])[:, None])


def error_ahead(square: Values) -> float:
    """The mean over the horizon of the logarithm of the mean of square errors (N, horizon).

    Every step ahead counts alike, however large its errors are. What explodes has an infinite error.
    """
    mean = np.nan_to_num(square.mean(0), nan=np.inf, posinf=np.inf)
    return float(np.log(np.maximum(mean, 1e-300)).mean())


def choose_linear(task: Forecasting, ends: Ends, relatives: Sequence[bool]) -> tuple[bool, int, float]:
    """Whether values are relative, the number of lags, and the ridge strength, with the least error on the blocks."""
    blocks = _blocks(task, ends)
    found = [
        (error_ahead(square), relative, lags, strength)
        for relative in relatives
        for (lags, strength), square in _squares(task, blocks, relative).items()
    ]
    _, relative, lags, strength = min(found)
    return relative, lags, strength


def _blocks(task: Forecasting, ends: Ends) -> list[tuple[Ends, Ends]]:
    """Where each block begins and ends in each series; of short series there may only be what comes after `ends`."""
    blocks: list[tuple[Ends, Ends]] = []
    for first, last in pairwise(BLOCKS):
        starts = [int(first * len(values)) for values in task.series]
        # The last forecast of a block begins in it, and may look beyond.
        stops = [min(len(values), int(last * len(values)) + task.horizon - 1) for values in task.series]
        if any(
            start >= task.context + task.ahead and stop - start >= task.horizon
            for start, stop in zip(starts, stops, strict=True)
        ):
            blocks.append((starts, stops))
    return blocks or [(ends, [len(values) for values in task.series])]


def _squares(
    task: Forecasting, blocks: list[tuple[Ends, Ends]], relative: bool
) -> dict[tuple[int, float], Values]:
    """Square errors on all blocks, (origins, horizon), of each number of lags and each ridge strength."""
    squares: dict[tuple[int, float], list[Values]] = defaultdict(list)
    for starts, stops in blocks:
        levels = task.levels(starts, relative=relative)
        windows = cut(task.before(starts), task.exogenous, levels, task.context, task.ahead)
        targets = windows.targets.astype(np.float64)
        whole = later(task.before(stops), task.exogenous, levels, starts, task.context, task.horizon)
        units = task.units(starts, whole)
        for lags, strength in candidates(task.context):
            weights = ridge(features(windows.inputs, lags), targets, strength)

            def once(inputs: NDArray[np.float32], lags: int = lags, weights: Values = weights) -> Values:
                return features(inputs, lags) @ weights

            # Over a long horizon, some of them overflow.
            with np.errstate(over="ignore", invalid="ignore"):
                left = (whole.targets - task.ahead_of(whole.inputs, once, relative=relative)) * units
                squares[lags, strength].append(left**2)
    return {pair: np.concatenate(parts) for pair, parts in squares.items()}
