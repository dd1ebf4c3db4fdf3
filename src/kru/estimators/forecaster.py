"""Forecasting of series."""

from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kru.estimators.base import SequenceEstimator
from kru.estimators.choice import Forecasting, choose_linear, error_ahead
from kru.estimators.linear import features, ridge
from kru.estimators.scaling import Scaling
from kru.estimators.spread import INTERVALS, RECENT, SMALLEST, Spread, bound, likelier, spread_features
from kru.estimators.task import Regression
from kru.estimators.windows import (
    Level,
    Values,
    Windows,
    column,
    cut,
    later,
    read_exogenous,
    read_series,
    recursively,
)
from kru.export.forecast import Forecast
from kru.export.forecast import Spread as ProgramSpread
from kru.export.source import Exportable, network_from

BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the network to choose from."""
FEWEST = 20
"""Windows from which a deviation that depends on the window can be fitted."""
TREND = 0.2
"""relative="auto" without a linear part: a series whose steps are below this part of its deviation has a trend."""


class Interval(NamedTuple):
    """Lower and upper bounds, of the shape of a prediction."""

    lower: Values
    upper: Values


class KRUForecaster(SequenceEstimator):
    """Forecasts series: a linear autoregression, and a recurrent network that learns what it leaves.

    Lags and ridge penalty of the linear part, and what values are relative to, are chosen by forecasts of three blocks
    of the second half of each series, each from what comes before it. Then the end of every series is held out. There
    the weight of the network is chosen, and the errors of each step ahead are kept, from which prediction intervals are
    made (split conformal prediction). At last both parts are fitted to everything.

    Args:
        horizon: how many steps to forecast.
        strategy: "recursive": a model of one step, applied to its own forecasts. "direct": one output for each step of
            the horizon.
        context: past values that are read; None for a quarter of the shortest series, at most 64.
        relative: whether values are read relative to the last one, for series with a trend; "auto" decides by the
            errors of the linear part.
        linear: whether there is a linear part.
        calibration_fraction: the part of each series that is first held out.
        interval: how wide prediction intervals are. "constant": the same for every window. "gaussian": in proportion to
            a deviation that depends on the window's level and recent changes, fitted by maximum likelihood. "auto"
            takes the one under which the errors on what was held out are likelier.
        kind, units, factors, max_parameters, layers, dropout: the network, see `KRUClassifier`.
        steps, epochs, batch_size, learning_rate, recurrent_learning_rate, penalty, average: its training, see
            `KRUClassifier`.
        device, random_state, verbose: see `KRUClassifier`.
        warm_start, folder: with both, a fit that was interrupted continues exactly from its last checkpoint; see
            `KRUClassifier`.

    Attributes:
        linear_, lags_: weights (features, outputs) of the linear part, and how many past values it reads.
        blend_: the weight of the network, from 0 to 1.
        residuals_: errors on what was held out, (origins, horizon), in units of each series' scale, or of the deviation
            that `spread_` says.
        spread_: the `kru.estimators.spread.Spread` of "gaussian" intervals, else None.

    >>> import numpy as np
    >>> from kru.estimators import KRUForecaster
    >>> y = np.sin(np.arange(200) / 5)
    >>> forecast = KRUForecaster(horizon=3, units=8, steps=20, random_state=0).fit(y).predict()
    >>> np.abs(forecast - np.sin(np.arange(200, 203) / 5)).max() < 0.05
    np.True_
    """

    readout = "last"
    bidirectional = False
    symbols = False
    differences = False
    missing = "error"
    validation_fraction = 0.0
    patience = None

    def __init__(
        self,
        horizon: int = 1,
        strategy: str = "recursive",
        *,
        context: int | None = None,
        relative: bool | str = "auto",
        linear: bool = True,
        calibration_fraction: float = 0.2,
        interval: str = "auto",
        kind: str = "kru-gru",
        units: int | None = 32,
        factors: Any = None,
        max_parameters: int | None = None,
        layers: int = 1,
        dropout: float = 0.0,
        steps: int | None = 300,
        epochs: int | None = None,
        batch_size: int | str = 32,
        learning_rate: float = 3e-3,
        recurrent_learning_rate: float | None = None,
        penalty: float = 1e-2,
        average: float = 0.98,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        folder: str | Path | None = None,
    ) -> None:
        self.horizon = horizon
        self.strategy = strategy
        self.context = context
        self.relative = relative
        self.linear = linear
        self.calibration_fraction = calibration_fraction
        self.interval = interval
        self.kind = kind
        self.units = units
        self.factors = factors
        self.max_parameters = max_parameters
        self.layers = layers
        self.dropout = dropout
        self.steps = steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.recurrent_learning_rate = recurrent_learning_rate
        self.penalty = penalty
        self.average = average
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.folder = folder

    def fit(self, y: Any, X: Any = None) -> Self:
        """Train on series.

        Args:
            y: (time,), (series, time), or a list of series of unequal lengths.
            X: exogenous inputs, (channels, time) with the series' times, a list of these for several series. The
                value at time t has to be known before t is forecast.
        """
        self._check_settings()
        series = read_series(y)
        exogenous = self._scaled_exogenous(X, series)
        shortest = min(map(len, series))
        self.context_ = self.context or min(64, max(2, shortest // 4))
        if not 0 < self.calibration_fraction < 1:
            raise ValueError(
                f"calibration_fraction: expected above 0 and below 1, got {self.calibration_fraction!r}"
            )
        ends = [len(values) - max(1, int(self.calibration_fraction * len(values))) for values in series]
        self.horizon_ = self.horizon
        # A training that was interrupted while it was chosen is not followed by another one.
        direct = self.strategy == "direct"
        task = Forecasting(series, exogenous, self.context_, self.horizon_, direct)
        if not self._choose(task, ends):
            self._fit_parts(series, exogenous)
        self.n_channels_ = 1
        self.scaling_ = self.vocabulary_ = None
        levels = [Level.of(values, relative=self.relative_) for values in series]
        self.history_ = [values[-self.context_ :].tolist() for values in series]
        self.levels_ = [(level.mean, level.scale) for level in levels]
        return self

    def predict(self, y: Any = None, X: Any = None) -> Values:
        """The values that follow series, (horizon,), or (series, horizon) for several.

        Args:
            y: histories; None for the series of the fit.
            X: exogenous inputs of the histories and the horizon, (channels, time + horizon); without y only of the
                last `context_` times and the horizon.
        """
        forecasts, _ = self._forecast(y, X)
        return forecasts[0] if self._single(y) else forecasts

    def predict_interval(self, y: Any = None, X: Any = None, level: float = 0.9) -> Interval:
        """Bounds between which each value lies with probability `level`, from the errors on held-out data."""
        if not 0 < level < 1:
            raise ValueError(f"level: expected above 0 and below 1, got {level!r}")
        forecasts, sigma = self._forecast(y, X)
        half = sigma * bound(self.residuals_, level)
        bounds = Interval(forecasts - half, forecasts + half)
        return Interval(bounds.lower[0], bounds.upper[0]) if self._single(y) else bounds

    def exportable(self) -> Exportable:
        raise TypeError("a forecaster is more than one module: see `forecast_program`")

    def forecast_program(self, level: float = 0.9) -> Forecast:
        """The forecaster for `kru.export.c99` and `kru.export.javascript`, with intervals of this probability."""
        check_is_fitted(self, "network_")
        if not 0 < level < 1:
            raise ValueError(f"level: expected above 0 and below 1, got {level!r}")
        network = None
        if self.blend_ > 0:
            scaling = self.target_scaling_
            around = Exportable(
                self.network_, target_scaling=(self.blend_ * scaling.mean, self.blend_ * scaling.scale)
            )
            network = network_from(around)
        known, spread = self.exogenous_scaling_, self.spread_
        return Forecast(
            f"{type(self).__name__} of {self.network_settings_.kind}",
            network,
            self.context_,
            self.horizon_,
            self.lags_,
            self.relative_,
            self.strategy == "direct",
            self.linear_.astype(np.float32),
            np.array([mean for mean, _ in self.levels_], dtype=np.float32),
            np.array([scale for _, scale in self.levels_], dtype=np.float32),
            None if known is None else (known.mean.astype(np.float32), known.scale.astype(np.float32)),
            bound(self.residuals_, level).astype(np.float32),
            None
            if spread is None
            else ProgramSpread(
                spread.weights.astype(np.float32),
                np.stack([spread.centre, spread.width, spread.low, spread.high]).astype(np.float32),
                RECENT,
                SMALLEST,
            ),
            level,
        )

    def _check_settings(self) -> None:
        if self.strategy not in ("direct", "recursive"):
            raise ValueError(f"strategy: expected direct or recursive, got {self.strategy!r}")
        if not isinstance(self.horizon, int) or self.horizon < 1:
            raise ValueError(f"horizon: expected a positive integer, got {self.horizon!r}")
        if self.interval not in INTERVALS:
            raise ValueError(f"interval: expected one of {', '.join(INTERVALS)}, got {self.interval!r}")
        if self.context is not None and self.context < 1:
            raise ValueError(f"context: expected a positive integer or None, got {self.context!r}")

    @property
    def _ahead(self) -> int:
        return self.horizon_ if self.strategy == "direct" else 1

    def _relatives(self, series: list[Values]) -> tuple[bool, ...]:
        """What `relative` leaves to choose from."""
        if self.relative != "auto":
            return (bool(self.relative),)
        if self.linear:
            return (False, True)
        ratios = [np.diff(values).std() / max(values.std(), 1e-300) for values in series]
        return (bool(np.median(ratios) < TREND),)

    def _scaled_exogenous(self, X: Any, series: list[Values]) -> list[Values] | None:
        self.exogenous_scaling_ = None
        if X is None:
            return None
        arrays = read_exogenous(X, len(series))
        for index, (values, array) in enumerate(zip(series, arrays, strict=True)):
            if array.shape[1] != len(values):
                raise ValueError(
                    f"X: expected the {len(values)} times of series {index}, got {array.shape[1]}"
                )
        self.exogenous_scaling_ = Scaling.of(np.concatenate([array.T for array in arrays]))
        return [self.exogenous_scaling_.standardise(array.T).T for array in arrays]

    def _choose(self, task: Forecasting, ends: list[int]) -> bool:
        """Everything that is decided by what is held out, and the errors after the ends.

        Returns:
            whether the training was interrupted.
        """
        self.lags_, self.strength_, self.blend_ = 0, 0.0, 1.0
        relatives = self._relatives(task.series)
        self.relative_ = relatives[0]
        if self.linear:
            self.relative_, self.lags_, self.strength_ = choose_linear(task, ends, relatives)
        levels, before = task.levels(ends, relative=self.relative_), task.before(ends)
        interrupted = self._train(cut(before, task.exogenous, levels, self.context_, self._ahead), "choice")
        whole = later(task.series, task.exogenous, levels, ends, self.context_, self.horizon_)
        units = task.units(ends, whole)
        found = []
        for blend in BLENDS if self.linear else (1.0,):
            self.blend_ = blend
            errors = whole.targets - self._ahead_of(whole.inputs)
            found.append((error_ahead((errors * units) ** 2), blend, errors))
        _, self.blend_, errors = min(found, key=lambda entry: entry[:2])
        self.spread_ = None
        shortest = min(map(len, before))
        if self.interval != "constant" and shortest >= self.context_ + self.horizon_ + FEWEST:
            fitted = cut(before, task.exogenous, levels, self.context_, self.horizon_)
            known = fitted.targets - self._ahead_of(fitted.inputs)
            spread = Spread.fit(spread_features(fitted.inputs, fitted.bases), known.astype(np.float64))
            sigma = spread.sigma(spread_features(whole.inputs, whole.bases))
            if self.interval == "gaussian" or likelier(errors, sigma):
                self.spread_, errors = spread, errors / sigma
        self.residuals_ = errors
        return interrupted

    def _fit_parts(self, series: list[Values], exogenous: list[Values] | None) -> None:
        levels = [Level.of(values, relative=self.relative_) for values in series]
        self._train(cut(series, exogenous, levels, self.context_, self._ahead), "final")

    def _train(self, windows: Windows, part: str) -> bool:
        """The linear part, then the network on what it leaves; whether that was interrupted."""
        targets = windows.targets.astype(np.float64)
        self.linear_ = np.zeros((0, targets.shape[1]))
        if self.linear:
            x = features(windows.inputs, self.lags_)
            self.linear_ = ridge(x, targets, self.strength_)
            targets = targets - x @ self.linear_
        self.target_scaling_ = Scaling.of(targets)
        left = self.target_scaling_.standardise(targets).astype(np.float32)
        inputs = windows.inputs
        lengths = np.full(inputs.shape[1], len(inputs), dtype=np.int64)

        def task(held_out: NDArray[np.int64]) -> Regression:
            return Regression(
                inputs,
                lengths,
                left,
                weights=None,
                held_out=held_out,
                input_size=inputs.shape[2],
                output_size=left.shape[1],
            )

        # Never from the weights of the last fit, which may have seen what is held out here.
        outcome = self._fit(
            task, inputs, left, (inputs.shape[2], left.shape[1]), part=part, from_weights=False
        )
        return outcome.trainer is not None

    def _network(self, inputs: NDArray[np.float32]) -> Values:
        """What the network adds for windows (context, N, D), (N, ahead)."""
        device = next(self.network_.parameters()).device
        with torch.inference_mode():
            outputs, _ = self.network_(torch.from_numpy(np.ascontiguousarray(inputs)).to(device), None, None)
        return self.target_scaling_.undo(outputs.cpu().numpy())

    def _once(self, inputs: NDArray[np.float32]) -> Values:
        """Standardised forecasts of one application, (N, ahead)."""
        values = self.blend_ * self._network(inputs)
        if self.linear:
            values = values + features(inputs, self.lags_) @ self.linear_
        return values

    def _ahead_of(self, inputs: NDArray[np.float32]) -> Values:
        """Standardised forecasts for windows that `cut` made for the whole horizon, (N, horizon)."""
        if self.strategy == "direct":
            return self._once(inputs)
        return recursively(inputs, self._once, self.horizon_, relative=self.relative_)

    def _forecast(self, y: Any, X: Any) -> tuple[Values, Values]:
        """Forecasts (series, horizon), and the unit of their errors, of the same shape."""
        check_is_fitted(self, "network_")
        if y is None:
            series = [np.array(values) for values in self.history_]
            levels = [Level(mean, scale, self.relative_) for mean, scale in self.levels_]
        else:
            series = read_series(y)
            levels = [Level.of(values, relative=self.relative_) for values in series]
            if self.levels_ and len(self.levels_) == len(series):
                # A short history says little of a series that the fit has seen.
                levels = [Level(mean, scale, self.relative_) for mean, scale in self.levels_]
        if (X is None) != (self.exogenous_scaling_ is None):
            wanted = "no exogenous inputs" if X is not None else "the exogenous inputs of the fit"
            raise ValueError(f"X: expected {wanted}, got {'some' if X is not None else 'none'}")
        arrays = None if X is None else read_exogenous(X, len(series))
        columns, bases = [], []
        for index, (values, level) in enumerate(zip(series, levels, strict=True)):
            if len(values) < self.context_:
                raise ValueError(
                    f"y: expected at least the {self.context_} values of the context, got {len(values)} in series "
                    f"{index}"
                )
            window = values[-self.context_ :]
            x = None
            if arrays is not None and self.exogenous_scaling_ is not None:
                if arrays[index].shape[1] != len(values) + self.horizon_:
                    raise ValueError(
                        f"X: expected {len(values)} times and the {self.horizon_} of the horizon, got "
                        f"{arrays[index].shape[1]} in series {index}"
                    )
                x = self.exogenous_scaling_.standardise(arrays[index].T).T
            columns.append(column(window, x, len(values) - 1, level, self.horizon_))
            bases.append(level.base(window))
        inputs = np.stack(columns, axis=1).astype(np.float32)
        forecasts = self._ahead_of(inputs)
        scales = np.array([level.scale for level in levels])[:, None]
        sigma = np.ones_like(forecasts)
        if self.spread_ is not None:
            means = np.array([level.mean for level in levels])
            sigma = self.spread_.sigma(spread_features(inputs, (np.array(bases) - means) / scales[:, 0]))
        return forecasts * scales + np.array(bases)[:, None], sigma * scales

    def _single(self, y: Any) -> bool:
        if y is None:
            return len(self.history_) == 1
        return np.ndim(y[0]) == 0 if isinstance(y, list | tuple) else np.ndim(y) == 1

    def _scalings(self) -> dict[str, Scaling]:
        scalings = {"target": self.target_scaling_}
        if self.exogenous_scaling_ is not None:
            scalings["exogenous"] = self.exogenous_scaling_
        return scalings

    def _fitted(self) -> dict[str, Any]:
        return {
            "context": self.context_,
            "horizon": self.horizon_,
            "relative": self.relative_,
            "blend": self.blend_,
            "lags": self.lags_,
            "linear": self.linear_.tolist(),
            "residuals": self.residuals_.tolist(),
            "spread": None
            if self.spread_ is None
            else {name: value.tolist() for name, value in vars(self.spread_).items()},
            "history": self.history_,
            "levels": [list(level) for level in self.levels_],
        }

    def _restore(self, fitted: dict[str, Any], scalings: dict[str, Scaling]) -> None:
        self.context_, self.horizon_ = int(fitted["context"]), int(fitted["horizon"])
        self.relative_, self.blend_ = bool(fitted["relative"]), float(fitted["blend"])
        self.lags_ = int(fitted["lags"])
        settings = self.network_settings_
        self.target_scaling_, self.exogenous_scaling_ = scalings["target"], scalings.get("exogenous")
        channels = 0 if self.exogenous_scaling_ is None else len(self.exogenous_scaling_.mean)
        if (settings.inputs, settings.outputs) != (1 + self._ahead * channels, self._ahead):
            raise ValueError(f"network: expected {self._ahead} outputs, got {settings.outputs}")
        self.linear_ = np.array(fitted["linear"], dtype=np.float64).reshape(-1, self._ahead)
        if self.linear and len(self.linear_) != self.lags_ + self._ahead * channels + 1:
            raise ValueError(f"linear: expected weights of {self.lags_} values, got {len(self.linear_)}")
        self.residuals_ = np.array(fitted["residuals"], dtype=np.float64).reshape(-1, self.horizon_)
        self.spread_ = _stored_spread(fitted.get("spread"), self.horizon_)
        self.history_ = [[float(value) for value in values] for values in fitted["history"]]
        self.levels_ = [(float(mean), float(scale)) for mean, scale in fitted["levels"]]
        self.scaling_, self.n_channels_ = None, 1


def _stored_spread(stored: Any, horizon: int) -> Spread | None:
    """The spread in a file; none in one without."""
    if stored is None:
        return None
    parts = {
        name: np.array(stored[name], dtype=np.float64)
        for name in ("weights", "centre", "width", "low", "high")
    }
    for name, value in parts.items():
        shape = (horizon, 4) if name == "weights" else (3,)
        if value.shape != shape or not np.isfinite(value).all():
            raise ValueError(f"spread: expected finite {name} of shape {shape}, got {value.shape}")
    return Spread(**parts)
