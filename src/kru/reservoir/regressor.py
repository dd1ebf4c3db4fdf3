"""Regression from sequences by an echo state network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin

from kru.estimators.data import Cases, read_cases
from kru.reservoir.echo_state import Array, EchoState, chunked
from kru.reservoir.stepper import Stepper
from kru.reservoir.streams import RegressorStream
from kru.reservoir.sweep import sweep


class EchoStateRegressor(RegressorMixin, EchoState):  # type: ignore[misc]
    """A value at every step, or one for each case, from a reservoir's states by ridge regression.

    ``fit(X, y)``: X is an array (cases, channels, time) or (cases, time), or a list of arrays (channels, time). With
    y (cases, outputs, time), (cases, time) of X's length or a list of such, there is a target at every step. With y
    (cases,) or (cases, outputs), there is one for each case, and the states are pooled.

    Args:
        pooling: "moments" (mean and standard deviation over time), "mean" or "last": how the states of a case become
            one row, where there is one target for each case.
        feedback: the target of the step before is an input too: the true one in `fit`, the model's own in `predict`.

    >>> import numpy as np
    >>> from kru.reservoir import EchoStateRegressor
    >>> u = np.random.default_rng(0).uniform(-1, 1, (1, 600))
    >>> y = np.roll(u, 3)
    >>> model = EchoStateRegressor(units=64).fit(u, y)
    >>> bool(np.abs(model.predict(u)[0, 100:] - y[0, 100:]).max() < 0.2)
    True
    """

    def __init__(
        self,
        units: int = 512,
        *,
        spectral_radius: float = 0.9,
        leak: Any = 1.0,
        input_scaling: Any = 0.5,
        input_connectivity: float = 1.0,
        bias_scaling: float = 0.5,
        factors: Any = None,
        field: str = "real",
        nonlinearity: str = "tanh",
        layers: int = 1,
        ridge: Any = None,
        validation: str = "blocked",
        folds: int = 5,
        solver: str = "auto",
        n_features: int = 2048,
        washout: int | None = None,
        input_to_readout: bool = True,
        precision: str = "float64",
        random_state: int | None = 0,
        pooling: str = "moments",
        feedback: bool = False,
    ) -> None:
        super().__init__(
            units,
            spectral_radius=spectral_radius,
            leak=leak,
            input_scaling=input_scaling,
            input_connectivity=input_connectivity,
            bias_scaling=bias_scaling,
            factors=factors,
            field=field,
            nonlinearity=nonlinearity,
            layers=layers,
            ridge=ridge,
            validation=validation,
            folds=folds,
            solver=solver,
            n_features=n_features,
            washout=washout,
            input_to_readout=input_to_readout,
            precision=precision,
            random_state=random_state,
        )
        self.pooling = pooling
        self.feedback = feedback

    def fit(self, X: Any, y: Any) -> EchoStateRegressor:
        """Draw the reservoir and fit the read-out."""
        cases = read_cases(X)
        self.per_step_ = _has_steps(y, cases)
        if self.per_step_:
            targets = read_cases(y, name="y")
            if targets.lengths.tolist() != cases.lengths.tolist():
                raise ValueError(
                    f"y: expected a target for each step, {cases.lengths.tolist()} steps, "
                    f"got {targets.lengths.tolist()}"
                )
            self.flat_ = _is_flat(y)
            wanted = targets.values
            if self.feedback:
                cases = _with_feedback(cases, wanted)
        else:
            if self.feedback:
                raise ValueError("feedback: expected False with one target for each case, got True")
            table = np.asarray(y, dtype=np.float64)
            if table.ndim not in (1, 2) or len(table) != len(cases):
                raise ValueError(
                    f"y: expected {len(cases)} targets, one for each case, got shape {table.shape}"
                )
            if not np.isfinite(table).all():
                raise ValueError("y: expected finite numbers, got NaN or infinity")
            self.flat_ = table.ndim == 1
            wanted = table[:, None] if self.flat_ else table
        self._scale(cases)
        self._build(cases.values.shape[2], not self.per_step_ and self.pooling == "moments")
        self.n_features_in_ = cases.values.shape[2] - (wanted.shape[-1] if self.feedback else 0)
        outputs = wanted.shape[-1]
        self.target_scale_ = float(np.std(wanted[cases.real()] if self.per_step_ else wanted)) or 1.0
        if self.per_step_:
            washout = self._washout(100, cases)
            self._solve(self._step_rows(cases, wanted, washout), outputs)
        else:
            features = self._pooled(cases, self._washout(0, cases), self.pooling)
            self._solve(chunked(features, torch.from_numpy(wanted)), outputs)
        return self

    def predict(self, X: Any) -> Any:
        """Predictions in the form of y: an array, or a list where the cases have unequal lengths."""
        cases = read_cases(X)
        if not self.per_step_:
            rows = self.linear_(self._pooled(cases, self._washout(0, cases), self.pooling)).numpy()
            return rows[:, 0] if self.flat_ else rows
        values = self._run_free(cases) if self.feedback else self._run(cases)
        found = [values[:length, b].T for b, length in enumerate(cases.lengths)]
        found = [case[0] for case in found] if self.flat_ else found
        return np.stack(found) if len(set(cases.lengths.tolist())) == 1 else found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 over all cases, or over all steps after the washout."""
        from sklearn.metrics import r2_score

        predicted = self.predict(X)
        if self.per_step_:
            if sample_weight is not None:
                raise ValueError("sample_weight: expected None with a target for each step, got weights")
            pairs = [read_cases(values, name="y") for values in (y, predicted)]
            washout = self._washout(100, pairs[0])
            y, predicted = (pair.values[washout:][pair.real()[washout:]] for pair in pairs)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def stream(self) -> RegressorStream:
        """One step after the other: `step(x)` takes x (channels,) and returns the prediction so far."""
        return RegressorStream(self)

    def _run(self, cases: Cases) -> Array:
        out = np.zeros((*cases.values.shape[:2], len(self.linear_.bias)))
        for which, inputs, _ in self._batches(cases):
            for start, states in sweep(self.reservoir_, inputs):
                part = inputs[start : start + len(states)]
                rows = self._features(states.flatten(0, 1), part.flatten(0, 1))
                out[start : start + len(states), which] = self.linear_(rows).reshape(*states.shape[:2], -1)
        return out

    def _run_free(self, cases: Cases) -> Array:
        """With feedback: what was predicted in a step is an input of the next."""
        out = np.zeros((*cases.values.shape[:2], len(self.linear_.bias)))
        stepper = Stepper(self.reservoir_, batch=len(cases))
        last = np.zeros((len(cases), out.shape[-1]))
        for t in range(len(out)):
            inputs = self._inputs(np.concatenate([cases.values[t], last], -1))
            states = stepper.step(inputs)
            out[t] = last = self.linear_(self._features(states, inputs)).numpy()
        return out


def _has_steps(y: Any, cases: Cases) -> bool:
    """Whether there is a target at each step."""
    if isinstance(y, list | tuple) and len(y) and np.ndim(y[0]) > 0:
        return len({np.shape(case) for case in y}) > 1 or np.shape(y[0])[-1] == cases.lengths[0]
    shape = np.shape(y)
    return len(shape) == 3 or (len(shape) == 2 and shape[1] == len(cases.values) > 1)


def _is_flat(y: Any) -> bool:
    """Whether the one output has no dimension of its own."""
    return np.ndim(y[0]) == 1


def _with_feedback(cases: Cases, targets: Array) -> Cases:
    before = np.concatenate([np.zeros_like(targets[:1]), targets[:-1]])
    return Cases(np.concatenate([cases.values, before], -1), cases.lengths)
