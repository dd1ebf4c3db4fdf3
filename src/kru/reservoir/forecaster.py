"""Forecasts in free run by an echo state network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kru.estimators.data import Cases, read_cases
from kru.reservoir.checks import check_size
from kru.reservoir.compose import Deep
from kru.reservoir.echo_state import Array, EchoState
from kru.reservoir.stepper import Stepper
from kru.reservoir.streams import ForecasterStream
from kru.reservoir.sweep import sweep

ORIGINS = 256
"""So many forecasts of a backtest run side by side."""
QR_LIMIT = 1200
"""Up to so many features "auto" fits by a triangular factor, whose decompositions then take seconds."""


class EchoStateForecaster(EchoState):
    """Learns to predict the next value of one or several channels, and forecasts by feeding predictions back.

    ``fit(y)``: y is a series (time,) or (channels, time), or several: an array (cases, channels, time) or a list of
    arrays (channels, time). `predict` continues the series that was fitted, or any other one that it is given.

    >>> import numpy as np
    >>> from kru.reservoir import EchoStateForecaster
    >>> series = np.sin(0.2 * np.arange(630))
    >>> forecast = EchoStateForecaster(units=128).fit(series[:600]).predict(30)
    >>> bool(np.abs(forecast - series[600:]).max() < 0.01)
    True
    """

    def fit(self, y: Any, X: Any = None) -> EchoStateForecaster:
        """Draw the reservoir and fit the read-out to one step ahead.

        Args:
            y: the series.
            X: inputs known in advance, (channels, time) of the same times as one series y: X at the time of the value
                to be predicted is an input. None for none.
        """
        cases = _series(y)
        self.flat_ = np.ndim(y) == 1
        self.outputs_ = cases.values.shape[2]
        targets = cases.values[1:]
        cases = self._with_known(Cases(cases.values[:-1], cases.lengths - 1), X, 1)
        if cases.lengths.min() < 1:
            raise ValueError("y: expected at least two steps, got one")
        self._scale(cases)
        self._build(cases.values.shape[2])
        self.n_features_in_ = self.outputs_
        # The last value is not standardised by its successor's statistics: targets share the inputs' scale.
        scaled = (targets - self.mean_[: self.outputs_]) / self.scale_[: self.outputs_]
        self.target_scale_ = 1.0
        self._solve(self._step_rows(cases, scaled, self._washout(100, cases)), self.outputs_)
        self._context = None
        if len(cases) == 1:
            self._state, self._last = self._warm(cases.values[:, 0]), targets[-1, 0]
        else:
            self._state, self._last = None, None
        return self

    @torch.no_grad()
    def predict(self, horizon: int, y: Any = None, X: Any = None) -> Array:
        """The next `horizon` values, (horizon,) or (channels, horizon), as y was.

        Args:
            y: the series to continue, if it is not the fitted one: (time,) or (channels, time), longer than the
                washout.
            X: the known inputs (channels, horizon) at the times of the forecast; with y, at the times of y and of the
                forecast, (channels, time + horizon).
        """
        check_size("horizon", horizon)
        known = None if X is None else np.atleast_2d(np.asarray(X, dtype=np.float64)).T
        state, last = self._start(y, known)
        extra = len(self.mean_) - self.outputs_
        if (0 if known is None else known.shape[1]) != extra:
            raise ValueError(
                f"X: expected {extra} known inputs, got {0 if known is None else known.shape[1]}"
            )
        if known is not None:
            known = known[-horizon:] if y is not None else known
            if len(known) != horizon or not np.isfinite(known).all():
                raise ValueError(f"X: expected finite values for {horizon} steps, got shape {np.shape(X)}")
            known = (known - self.mean_[self.outputs_ :]) / self.scale_[self.outputs_ :]
        row = self._inputs(np.concatenate([last, np.zeros(extra)])[None])[:, : self.outputs_]
        coming = None if known is None else torch.from_numpy(known).unsqueeze(1)
        forecast: Array = self._free_run(state, row, coming, horizon)[0]
        return np.asarray(forecast[0]) if self.flat_ else forecast

    @torch.no_grad()
    def backtest(
        self, y: Any, X: Any = None, *, horizon: int = 10, start: int | None = None
    ) -> tuple[Array, Array]:
        """Forecasts (origins, channels, horizon) of a series from every step on, and what came.

        Args:
            y: one series, (time,) or (channels, time).
            X: its known inputs, (channels, time).
            start: how many values are known at the first origin; None for the washout and one more.
        """
        check_size("horizon", horizon)
        given = _series(y)
        if len(given) != 1 or given.values.shape[2] != self.outputs_:
            raise ValueError(f"y: expected one series of {self.outputs_} channels, got shape {np.shape(y)}")
        values = given.values[:, 0]
        first = (100 if self.washout is None else self.washout) + 1 if start is None else start
        count = len(values) - horizon - first + 1
        if first < 1 or count < 1:
            raise ValueError(
                f"y: expected at least {max(first, 1) + horizon} values, those known at the first origin and the "
                f"horizon, got {len(values)}"
            )
        cases = self._with_known(Cases(given.values[:-1], given.lengths - 1), X, 1)
        inputs = self._inputs(cases.values)
        found = []
        size: int = self.reservoir_.output_size  # type: ignore[assignment]
        before = torch.zeros(1, 1, size, dtype=inputs.dtype)
        for at, states in sweep(self.reservoir_, inputs[: len(values) - horizon], ORIGINS):
            # The state before input t continues with it: an origin at which t + 1 values are known.
            begin = max(first - 1, at)
            states = torch.cat([before, states])
            before = states[-1:]
            chosen = states[begin - at : len(states) - 1, 0]
            if len(chosen) == 0:
                continue
            places = torch.arange(begin, begin + len(chosen))
            known = None
            if inputs.shape[2] > self.outputs_:
                ahead = torch.arange(horizon).unsqueeze(1) + places
                known = inputs[ahead, 0, self.outputs_ :]
            rows = inputs[places, 0, : self.outputs_]
            found.append(self._free_run(self._as_state(chosen), rows, known, horizon))
        actual = np.lib.stride_tricks.sliding_window_view(values[first:], horizon, axis=0)
        return np.concatenate(found), actual

    def _as_state(self, states: Tensor) -> Any:
        """Outputs of the reservoir (B, S) as the state that it takes."""
        if not isinstance(self.reservoir_, Deep):
            return states.unsqueeze(0)
        sizes = [layer.output_size for layer in self.reservoir_.reservoirs]
        return tuple(part.unsqueeze(0) for part in states.split(sizes, -1))  # type: ignore[no-untyped-call]

    def _free_run(self, state: Any, row: Tensor, known: Tensor | None, horizon: int) -> Array:
        """Forecasts (B, O, horizon) after standardised values (B, O), with known inputs (horizon, B, K)."""
        mean, scale = self.mean_[: self.outputs_, None], self.scale_[: self.outputs_, None]
        out = torch.empty(len(row), self.outputs_, horizon, dtype=torch.float64)
        stepper, linear = Stepper(self.reservoir_, state, batch=len(row)), self.linear_
        for t in range(horizon):
            inputs = row if known is None else torch.cat([row, known[t].to(row)], -1)
            states = stepper.step(inputs)
            predicted = linear(self._features(states, inputs))
            out[:, :, t] = predicted
            row = predicted.to(row.dtype)
        forecast: Array = out.numpy() * scale + mean
        return forecast

    def one_step(self, y: Any) -> Array:
        """What was predicted for each value of y (channels, time) but the first, from the true ones before it."""
        cases = _series(y)
        inputs = self._inputs(cases.values[:-1])
        parts = [
            self.linear_(self._features(states[:, 0], inputs[start : start + len(states), 0]))
            for start, states in sweep(self.reservoir_, inputs)
        ]
        found: Array = (torch.cat(parts).numpy() * self.scale_ + self.mean_).T
        return found[0] if np.ndim(y) == 1 else found

    def stream(self) -> ForecasterStream:
        """One value after the other: `step(y)` takes the newest one and returns the forecast of the next."""
        return ForecasterStream(self)

    def _uses_qr(self) -> bool:
        # Errors of a free run grow exponentially, so every digit of the read-out makes it longer.
        fine = self.readout_size_ <= QR_LIMIT and self.precision == "float64" and self.projection_ is None
        return super()._uses_qr() or (self.solver == "auto" and fine)

    def _start(self, y: Any, known: Array | None) -> tuple[Any, Array]:
        """The reservoir's state before the last known value, and that value."""
        if y is None:
            if self._last is None:
                raise ValueError("y: expected the series to continue, as several were fitted, got None")
            return self._state, self._last
        cases = _series(y)
        if len(cases) != 1 or cases.values.shape[2] != self.outputs_:
            raise ValueError(f"y: expected one series of {self.outputs_} channels, got shape {np.shape(y)}")
        self._washout(100, cases)
        values = cases.values[:, 0]
        context = values[:-1]
        if known is not None:
            context = np.concatenate([context, known[1 : len(values)]], -1)
        return self._warm(context), values[-1]

    def _warm(self, values: Array) -> Any:
        """The reservoir's state after values (T, D)."""
        state: Any = None
        inputs = self._inputs(values[:, None])
        with torch.no_grad():
            for part in torch.split(inputs, 1024):
                _, state = self.reservoir_(part, state)
        return state

    def _with_known(self, cases: Cases, X: Any, ahead: int) -> Cases:
        if X is None:
            return cases
        if len(cases) != 1:
            raise ValueError("X: expected None with several series, got known inputs")
        known = read_cases(np.atleast_2d(np.asarray(X, dtype=np.float64))[None]).values
        if len(known) != len(cases.values) + ahead:
            raise ValueError(f"X: expected {len(cases.values) + ahead} steps as in y, got {len(known)}")
        return Cases(np.concatenate([cases.values, known[ahead:]], -1), cases.lengths)


def _series(y: Any) -> Cases:
    """A series (time,) or (channels, time) is one case."""
    if isinstance(y, list | tuple) and np.ndim(y[0]) > 0:
        return read_cases(y, name="y")
    array = np.asarray(y, dtype=np.float64)
    if array.ndim == 1:
        array = array[None]
    return read_cases(array[None] if array.ndim == 2 else array, name="y")
