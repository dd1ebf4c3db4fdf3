"""How good a forecaster would have been."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kru.estimators.windows import Values, read_exogenous, read_series


@dataclass(frozen=True)
class Backtest:
    """Forecasts from several origins beside what came.

    Attributes:
        origins: (N,), how many values were known.
        forecasts, actual, lower, upper: (N, horizon).
    """

    origins: NDArray[np.int64]
    forecasts: Values
    actual: Values
    lower: Values
    upper: Values

    @property
    def rmse(self) -> Values:
        """Root mean square error of each step ahead, (horizon,)."""
        error: Values = np.sqrt(((self.forecasts - self.actual) ** 2).mean(0))
        return error

    @property
    def mae(self) -> Values:
        """Mean absolute error of each step ahead, (horizon,)."""
        error: Values = np.abs(self.forecasts - self.actual).mean(0)
        return error

    @property
    def coverage(self) -> Values:
        """How often the value was within the interval, for each step ahead, (horizon,)."""
        inside: Values = ((self.lower <= self.actual) & (self.actual <= self.upper)).mean(0)
        return inside


def backtest(
    forecaster: Any, y: Any, X: Any = None, *, start: int, every: int = 1, level: float = 0.9
) -> Backtest:
    """Forecast the rest of a series from one origin after the other, each time with the values before it.

    Args:
        forecaster: a fitted one is used as it is; one that is not is first fitted to the values before `start`. It is
            not fitted again on the way.
        y: one series, (time,).
        X: its exogenous inputs, (channels, time).
        start: how many values are known at the first origin.
        every: steps from one origin to the next.
        level: of the intervals.
    """
    [values] = read_series(np.asarray(y))
    x = None if X is None else read_exogenous(X, 1)[0]
    horizon = forecaster.horizon
    if not 0 < start <= len(values) - horizon:
        raise ValueError(
            f"start: expected 1 to {len(values) - horizon}, so that a horizon follows, got {start}"
        )
    if not hasattr(forecaster, "network_"):
        forecaster.fit(values[:start], None if x is None else x[:, :start])
    origins = np.arange(start, len(values) - horizon + 1, every)
    rows: list[tuple[Values, Values, Values, Values]] = []
    for origin in origins:
        known = None if x is None else x[:, : origin + horizon]
        forecast = forecaster.predict(values[:origin], known)
        bounds = forecaster.predict_interval(values[:origin], known, level)
        rows.append((forecast, values[origin : origin + horizon], bounds.lower, bounds.upper))
    forecasts, actual, lower, upper = (np.stack(part) for part in zip(*rows, strict=True))
    return Backtest(origins, forecasts, actual, lower, upper)
