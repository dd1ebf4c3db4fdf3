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


def candidates(context: int) -> list[tuple[int, float]]:
    """The numbers of lags and the strengths to choose from."""
    lags = [number for number in LAGS if number < context] + [context]
    return [(number, strength) for number in lags for strength in STRENGTHS]
