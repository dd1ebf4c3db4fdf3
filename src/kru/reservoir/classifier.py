"""Classification of sequences by an echo state network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from torch import Tensor

from kru.estimators.data import read_cases
from kru.reservoir.echo_state import EchoState, chunked
from kru.reservoir.streams import ClassifierStream

TEMPERATURES = tuple(2.0**power for power in range(-2, 7))


class EchoStateClassifier(ClassifierMixin, EchoState):  # type: ignore[misc]
    """A label for each sequence: its states pooled over time, then ridge regression on the classes.

    ``fit(X, y)``: X is an array (cases, channels, time) or (cases, time), or a list of arrays (channels, time) of
    unequal lengths; y has one label of any type for each case.

    Args:
        pooling: how the states of a case become one row: "moments" (mean and standard deviation over time), "mean" or
            "last".

    >>> import numpy as np
    >>> from kru.reservoir import EchoStateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = [np.sin((0.3 if k % 2 else 0.4) * np.arange(40 + k) + rng.uniform(0, 6)) for k in range(40)]
    >>> y = ["slow" if k % 2 else "fast" for k in range(40)]
    >>> EchoStateClassifier(units=64).fit(X[:30], y[:30]).score(X[30:], y[30:])
    1.0
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
        validation: str = "leave-one-out",
        folds: int = 5,
        solver: str = "auto",
        n_features: int = 2048,
        washout: int | None = None,
        input_to_readout: bool = True,
        precision: str = "float64",
        random_state: int | None = 0,
        pooling: str = "moments",
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

    def fit(self, X: Any, y: Any) -> EchoStateClassifier:
        """Draw the reservoir and fit the read-out."""
        cases = read_cases(X)
        labels = np.asarray(y)
        if labels.shape != (len(cases),):
            raise ValueError(f"y: expected {len(cases)} labels, one for each case, got shape {labels.shape}")
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got one, {self.classes_[0]!r}")
        self._scale(cases)
        self._build(cases.values.shape[2], self.pooling == "moments")
        self.n_features_in_ = cases.values.shape[2]
        features = self._pooled(cases, self._washout(0, cases), self.pooling)
        # Pooled values differ in size by orders of magnitude; one strength for all needs them alike.
        self.feature_mean_ = features.mean(0)
        deviation = features.std(0, correction=0)
        self.feature_scale_ = torch.where(deviation > 1e-9, deviation, torch.ones_like(deviation))
        features = (features - self.feature_mean_) / self.feature_scale_
        targets = torch.nn.functional.one_hot(torch.from_numpy(indices), len(self.classes_)).double()
        self._solve(chunked(features, targets), len(self.classes_))
        self.temperature_ = _temperature(features.double(), targets, self.strength_)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """(cases, classes): the regression on each class, near 1 for the label and 0 elsewhere."""
        cases = read_cases(X)
        return self._scores(self._pooled(cases, self._washout(0, cases), self.pooling)).numpy()

    def predict(self, X: Any) -> Any:
        """The class with the largest score for each case."""
        return self.classes_[self.decision_function(X).argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """softmax(scores * temperature); the temperature is the best one for the left-out training cases."""
        scores = torch.from_numpy(self.decision_function(X)) * self.temperature_
        return torch.softmax(scores, 1).numpy()

    def stream(self) -> ClassifierStream:
        """One step after the other: `step(x)` takes x (channels,) and returns the label so far."""
        return ClassifierStream(self)

    def _scores(self, pooled: Tensor) -> Tensor:
        return self.linear_((pooled - self.feature_mean_) / self.feature_scale_)


def _temperature(features: Tensor, targets: Tensor, strength: float) -> float:
    """What scores are multiplied by before the softmax: least cross-entropy of the leave-one-out scores."""
    kernel = features @ features.T
    kernel -= kernel.mean(0)
    kernel -= kernel.mean(1, keepdim=True)
    count = len(kernel)
    centred = targets - targets.mean(0)
    values, vectors = torch.linalg.eigh((kernel + kernel.T) / 2)
    # Residuals of ridge regression are strength (K + strength)^-1 y in the space of the cases.
    shrink = strength / (values.clamp(min=0) + strength)
    residual = vectors @ (shrink.unsqueeze(1) * (vectors.T @ centred))
    leverage = 1 - vectors.square() @ shrink + 1 / count
    left_out = targets - residual / (1 - leverage).clamp(min=1e-6).unsqueeze(1)
    losses = [
        torch.nn.functional.cross_entropy(left_out * temperature, targets).item()
        for temperature in TEMPERATURES
    ]
    return TEMPERATURES[int(np.argmin(losses))]
