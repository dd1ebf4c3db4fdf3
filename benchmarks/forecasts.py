"""KRUForecaster against autoregression and naive forecasts, on series inside statsmodels and aeon.

    .venv/bin/python benchmarks/forecasts.py --choose   # settings, with the training part of each series alone
    .venv/bin/python benchmarks/forecasts.py            # the test parts, and the table in docs/estimators.md

The last fifth of each series is its test part, forecast ten steps ahead from one origin after the other without fitting
again. --choose never reads it: settings are compared on the fifth before it. The order of AR and whether it has a trend
are chosen on what it is fitted to. Needs the extras estimators and compare. Every cell is saved when it is
finished, and skipped when the command is repeated.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import aeon.datasets
import numpy as np
import statsmodels.datasets
import torch
from cells import Cells
from numpy.typing import NDArray
from scipy.stats import norm
from statsmodels.tsa.ar_model import AutoReg, ar_select_order

from kru.estimators import Backtest, KRUForecaster, backtest

COMMAND = ".venv/bin/python benchmarks/forecasts.py"
HORIZON, LEVEL = 10, 0.9
TEST, ORIGINS = 0.2, 100
SEEDS = (0, 1, 2)
Values = NDArray[np.float64]


def statsmodels_series(name: str, column: str) -> Values:
    values: Values = (
        getattr(statsmodels.datasets, name).load_pandas().data[column].interpolate().to_numpy(float)
    )
    return values


def el_nino() -> Values:
    return statsmodels.datasets.elnino.load_pandas().data.to_numpy(float)[:, 1:].ravel()


def aeon_series(name: str) -> Values:
    file = Path(aeon.datasets.__file__).parent / "data" / name / f"{name}.csv"
    return np.loadtxt(file, delimiter=",", skiprows=1, usecols=1)


@dataclass(frozen=True)
class Series:
    load: Callable[[], Values]
    season: int = 1
    """steps, of the seasonal naive forecast"""


SERIES = {
    "sunspots": Series(partial(statsmodels_series, "sunspots", "SUNACTIVITY")),
    "co2": Series(partial(statsmodels_series, "co2", "co2"), 52),
    "elnino": Series(el_nino, 12),
    "unemployment": Series(partial(statsmodels_series, "macrodata", "unemp")),
    "nile": Series(partial(statsmodels_series, "nile", "volume")),
    "airline": Series(partial(aeon_series, "Airline"), 12),
    "lynx": Series(partial(aeon_series, "Lynx")),
}


class Naive:
    """The last value; with a season, the value one season ago. Intervals from the errors on the training part."""

    def __init__(self, season: int = 1) -> None:
        self.season, self.horizon, self.network_ = season, HORIZON, None

    def fit(self, y: Values) -> "Naive":
        ends = range(self.season, len(y) - HORIZON)
        errors = np.array([y[end : end + HORIZON] - self.predict(y[:end]) for end in ends])
        self.bounds = np.quantile(errors, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return self

    def predict(self, y: Values, X: None = None) -> Values:
        return np.resize(y[-self.season :], HORIZON)

    def predict_interval(self, y: Values, X: None, level: float) -> Any:
        return Bounds(*(self.predict(y) + self.bounds))


@dataclass(frozen=True)
class Bounds:
    lower: Values
    upper: Values


class AR:
    """Autoregression with Gaussian intervals.

    The order, up to 64 or a quarter of the series, is chosen by AIC. Whether there is a trend is decided by the errors
    over the horizon on the last fifth of what it is fitted to, which is also what KRUForecaster holds out.
    """

    def __init__(self) -> None:
        self.horizon, self.network_ = HORIZON, None

    def fit(self, y: Values) -> "AR":
        end = len(y) - len(y) // 5

        def error(trend: str) -> float:
            self._fit(y[:end], trend)
            ahead = [
                self.predict(y[:last]) - y[last : last + HORIZON] for last in range(end, len(y) - HORIZON + 1)
            ]
            return float(np.log(np.square(ahead).mean(0)).mean())

        self._fit(y, min(("c", "ct"), key=error))
        return self

    def _fit(self, y: Values, trend: str) -> None:
        self.trend = trend
        found = ar_select_order(y, min(64, len(y) // 4), ic="aic", trend=trend)
        self.lags = list(found.ar_lags or [])
        fitted = AutoReg(y, self.lags, trend=trend).fit()
        parameters = np.asarray(fitted.params)
        self.constants, self.weights = parameters[: len(trend)], parameters[len(trend) :]
        psi = [1.0]
        for _ in range(HORIZON - 1):
            past = psi[::-1]
            psi.append(
                sum(
                    w * past[lag - 1]
                    for w, lag in zip(self.weights, self.lags, strict=True)
                    if lag <= len(past)
                )
            )
        self.deviations = np.sqrt(fitted.sigma2 * np.cumsum(np.square(psi)))
        expected = fitted.forecast(HORIZON)
        np.testing.assert_allclose(self.predict(y), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())

    def predict(self, y: Values, X: None = None) -> Values:
        values = list(y)
        for _ in range(HORIZON):
            trend = [1.0, len(values) + 1.0][: len(self.trend)]
            past = [values[-lag] for lag in self.lags]
            values.append(float(self.constants @ trend + self.weights @ past))
        return np.array(values[len(y) :])

    def predict_interval(self, y: Values, X: None, level: float) -> Bounds:
        half = norm.ppf((1 + level) / 2) * self.deviations
        return Bounds(self.predict(y) - half, self.predict(y) + half)


def measured(model: Any, values: Values, start: int, end: int) -> dict[str, Any]:
    """Errors and coverage at one and ten steps, over the origins from start on; nothing after `end` is read."""
    begin = time.thread_time()
    model.fit(values[:start])
    seconds = time.thread_time() - begin
    every = max(1, -(-(end - start - HORIZON + 1) // ORIGINS))
    found: Backtest = backtest(model, values[:end], start=start, every=every, level=LEVEL)
    return {
        "rmse": [float(found.rmse[0]), float(found.rmse[-1])],
        "coverage": [float(found.coverage[0]), float(found.coverage[-1])],
        "width": [float((found.upper - found.lower)[:, step].mean()) for step in (0, -1)],
        "origins": len(found.origins),
        "train_seconds": round(seconds, 3),
    }


def split(values: Values) -> tuple[int, int]:
    """Where the validation part and the test part begin."""
    test = len(values) - round(TEST * len(values))
    return test - round(TEST * len(values)), test


def contestant(name: str, series: Series, seed: int, **settings: Any) -> Any:
    if name == "kru":
        return KRUForecaster(HORIZON, random_state=seed, **settings)
    return {"ar": AR, "naive": Naive, "seasonal": partial(Naive, series.season)}[name]()


def cell(name: str, model: str, seed: int) -> dict[str, Any]:
    values = SERIES[name].load()
    found = contestant(model, SERIES[name], seed)
    row = measured(found, values, split(values)[1], len(values))
    chosen = {"order": max(found.lags, default=0), "trend": found.trend} if model == "ar" else {}
    return {"series": name, "model": model, "seed": seed, "length": len(values)} | row | chosen


CHOICES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "direct": {"strategy": "direct"},
    "without the linear part": {"linear": False},
}


def choice_cell(name: str, choice: str) -> dict[str, Any]:
    values = SERIES[name].load()
    start, end = split(values)
    settings, model = CHOICES.get(choice), "kru"
    if settings is None:
        settings, model = {}, choice
    row = measured(contestant(model, SERIES[name], 0, **settings), values[:end], start, end)
    return {"series": name, "choice": choice} | row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--choose", action="store_true", help="compare settings on the training parts")
    parser.add_argument("--choices", nargs="+", default=["naive", "ar", *CHOICES], help="names of settings")
    parser.add_argument("--series", nargs="+", default=list(SERIES), choices=SERIES)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.choose:
        cells = Cells(arguments.out / "forecasts-choices.json", f"{COMMAND} --choose", ("series", "choice"))
        naive: dict[str, list[float]] = {}
        for choice in arguments.choices:
            for name in arguments.series:
                cells.add(partial(choice_cell, name, choice), name, choice)
            rows = {row["series"]: row for row in cells.rows if row["choice"] == choice}
            naive = naive or {name: row["rmse"] for name, row in rows.items()}
            ratios = [
                geometric_mean(rows[name]["rmse"][step] / naive[name][step] for name in arguments.series)
                for step in (0, 1)
            ]
            print(
                f"{choice}: {ratios[0]:.4f} {ratios[1]:.4f} of naive, "
                f"coverage {fmean(row['coverage'][0] for row in rows.values()):.3f}",
                flush=True,
            )
    else:
        cells = Cells(arguments.out / "forecasts.json", COMMAND, ("series", "model", "seed"))
        for name in arguments.series:
            for model in ("naive", "ar", "seasonal")[: 2 + (SERIES[name].season > 1)]:
                cells.add(partial(cell, name, model, 0), name, model, 0)
        for seed in arguments.seeds:
            for name in arguments.series:
                cells.add(partial(cell, name, "kru", seed), name, "kru", seed)


if __name__ == "__main__":
    main()
