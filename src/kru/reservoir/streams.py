"""Echo state models that are fed one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kru.reservoir.pooling import Pool
from kru.reservoir.stepper import Stepper

if TYPE_CHECKING:
    from kru.reservoir.classifier import EchoStateClassifier
    from kru.reservoir.echo_state import EchoState
    from kru.reservoir.forecaster import EchoStateForecaster
    from kru.reservoir.regressor import EchoStateRegressor


class _Stream:
    """The state of a model."""

    def __init__(self, model: EchoState) -> None:
        self._model = model
        self._stepper = Stepper(model.reservoir_)
        self._pool: Pool | None = None
        self._step = 0

    def _advance(self, name: str, x: Any, *more: Any) -> tuple[Tensor, Tensor]:
        """States and standardised inputs of the next step, (1, S) and (1, D), with values x (channels,) and `more`."""
        row = np.atleast_1d(np.asarray(x, dtype=np.float64))
        if row.ndim != 1 or not np.isfinite(row).all():
            raise ValueError(f"{name}: expected finite numbers, one for each channel, got {x}")
        inputs = self._model._inputs(np.concatenate([row, *more])[None])
        return self._stepper.step(inputs), inputs

    def _pooled(self, states: Tensor, inputs: Tensor) -> Tensor:
        """What the read-out of a model with pooled states sees of all steps so far."""
        model = self._model
        self._pool = Pool(model.pooling) if self._pool is None else self._pool
        rows = torch.cat([states, inputs], -1) if model.input_to_readout else states
        self._pool.add(rows.unsqueeze(0), torch.tensor([[self._step >= (model.washout or 0)]]))
        self._step += 1
        pooled = self._pool.result()
        return pooled if model.projection_ is None else model.projection_(pooled)


class RegressorStream(_Stream):
    """The state of a regressor."""

    _model: EchoStateRegressor

    def __init__(self, model: EchoStateRegressor) -> None:
        super().__init__(model)
        self._last = np.zeros(len(model.linear_.bias))

    @torch.no_grad()
    def step(self, x: Any) -> Any:
        """x (channels,) -> outputs (O,), or a number where y had one."""
        model = self._model
        states, inputs = self._advance("x", x, *([self._last] if model.feedback else []))
        read = model._features if model.per_step_ else self._pooled
        self._last = model.linear_(read(states, inputs)).numpy()[0]
        return float(self._last[0]) if model.flat_ else self._last


class ClassifierStream(_Stream):
    """The state of a classifier."""

    _model: EchoStateClassifier

    @torch.no_grad()
    def step(self, x: Any) -> Any:
        """x (channels,) -> the label of the sequence so far."""
        model = self._model
        scores = model._scores(self._pooled(*self._advance("x", x)))
        return model.classes_[int(scores.argmax())]


class ForecasterStream(_Stream):
    """The state of a forecaster."""

    _model: EchoStateForecaster

    def __init__(self, model: EchoStateForecaster) -> None:
        if len(model.mean_) != model.outputs_:
            raise ValueError("stream: expected a forecaster without known inputs")
        super().__init__(model)

    @torch.no_grad()
    def step(self, y: Any) -> Any:
        """The newest value (channels,) -> the forecast of the next one."""
        model = self._model
        predicted = model.linear_(model._features(*self._advance("y", y))).numpy()[0]
        predicted = predicted * model.scale_ + model.mean_
        return float(predicted[0]) if model.flat_ else predicted
