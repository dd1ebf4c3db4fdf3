"""The linear part of a forecaster: autoregression by ridge regression."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

STRENGTHS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
"""Ridge penalties to choose from, per window."""
LAGS = (1, 2, 3, 4, 6, 9, 12, 16, 24, 32, 48, 64)
"""Numbers of past values to choose from, besides all of the context."""


def features(inputs: NDArray[np.floating], lags: int) -> Values:
    """What the linear map reads of windows (context, N, D): the last values and the last exogenous ones, and 1."""
    past, last = inputs[-lags:, :, 0].T, inputs[-1, :, 1:]
    row: Values = np.concatenate([past, last, np.ones((inputs.shape[1], 1))], axis=1).astype(np.float64)
    return row


def ridge(x: Values, y: Values, strength: float) -> Values:
    """argmin ||x w - y||^2 + strength n ||w||^2, (features, targets); the last feature is the constant."""
    penalty = np.full(x.shape[1], strength * len(x))
    penalty[-1] = 1e-9 * len(x)
    weights: Values = np.linalg.solve(x.T @ x + np.diag(penalty), x.T @ y)
    return weights


def choose(
    inputs: NDArray[np.floating], y: Values, held_inputs: NDArray[np.floating], held_y: Values
) -> tuple[int, float]:
    """The number of lags and the strength with the smallest error on what was held out."""

    def error(lags: int, strength: float) -> float:
        weights = ridge(features(inputs, lags), y, strength)
        return float(((features(held_inputs, lags) @ weights - held_y) ** 2).mean())

    context = len(inputs)
    lags = [number for number in LAGS if number < context] + [context]
    return min(((n, s) for n in lags for s in STRENGTHS), key=lambda pair: error(*pair))
