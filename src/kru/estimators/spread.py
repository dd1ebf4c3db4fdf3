"""How large the errors of forecasts are: the same everywhere, or a Gaussian whose deviation depends on the window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kru.estimators.windows import Values

INTERVALS = ("auto", "constant", "gaussian")
RECENT = (4, 16)
"""Over so many steps at the end of a window its changes are averaged."""
SMALLEST = 0.05
"""Added to the mean change, in units of the series' scale: where nothing moves, its logarithm stays finite."""
RIDGE = 0.1
"""Penalty on the squared slopes, per window."""


@dataclass(frozen=True)
class Spread:
    """The deviation of the errors of a window, for each step h of the horizon.

        log sigma_h = a_h + sum_k w_hk clip(u_k, low_k, high_k),    u = (level, log changes over 4 and over 16 steps)

    with u standardised by `centre` and `width`. `low` and `high` are the bounds in the fit: outside nothing is known.

    Attributes:
        weights: (H, 4), a_h first.
        centre, width, low, high: (3,).
    """

    weights: Values
    centre: Values
    width: Values
    low: Values
    high: Values

    @staticmethod
    def fit(features: Values, errors: Values) -> "Spread":
        """Maximum likelihood of Gaussian errors (N, H), with a penalty on the slopes; features (N, 3)."""
        centre, width = features.mean(0), features.std(0)
        width = np.where(width > 0, width, 1.0)
        u = (features - centre) / width
        x = np.concatenate([np.ones((len(u), 1)), u], axis=1)
        weights = np.stack([_likeliest(x, errors[:, h]) for h in range(errors.shape[1])])
        return Spread(weights, centre, width, u.min(0), u.max(0))

    def sigma(self, features: Values) -> Values:
        """The deviations (N, H)."""
        u = np.clip((features - self.centre) / self.width, self.low, self.high)
        sigma: Values = np.exp(self.weights[:, 0] + u @ self.weights[:, 1:].T)
        return sigma


def spread_features(inputs: NDArray[np.floating], levels: Values) -> Values:
    """(N, 3): level, and logarithms of the mean absolute change over the last steps, of windows (context, N, D).

    Args:
        levels: (N,), what is to be added to the standardised last value: how far the window's base is from the mean
            of its series.
    """
    z = inputs[:, :, 0].astype(np.float64)
    changes = np.abs(np.diff(z, axis=0)) if len(z) > 1 else np.zeros((1, z.shape[1]))
    recent = [np.log(SMALLEST + changes[-steps:].mean(0)) for steps in RECENT]
    return np.stack([levels + z[-1], *recent], axis=1)


def likelier(errors: Values, sigma: Values) -> bool:
    """Whether errors (N, H) are likelier with these deviations than with one for each step, up to a common factor."""
    same = np.log(np.maximum((errors**2).mean(0), 1e-300)) / 2
    scaled = np.log(np.maximum(((errors / sigma) ** 2).mean(0), 1e-300)) / 2
    return bool((same - np.log(sigma).mean(0) - scaled).mean() > 0)


def bound(scores: Values, level: float) -> Values:
    """What the next absolute score of each step stays below with probability `level`, (H,), from (N, H) others.

    Split conformal prediction: of n + 1 exchangeable scores, the new one is among the k smallest with probability
    k / (n + 1). Errors h steps ahead of neighbouring windows overlap, so that of N only about n = N / h count.
    """
    count, horizon = scores.shape
    ordered = np.sort(np.abs(scores), axis=0)
    independent = count / np.arange(1, horizon + 1)
    wanted = np.minimum(level * (1 + 1 / independent), 1) * count
    rank = np.ceil(wanted - 1e-9).astype(int) - 1
    chosen: Values = ordered[np.clip(rank, 0, count - 1), np.arange(horizon)]
    return chosen


def _likeliest(x: Values, errors: Values) -> Values:
    """argmin_w sum_n s_n + e_n^2 exp(-2 s_n) / 2 + RIDGE N |slopes|^2 / 2 with s = x w, by Newton's method."""
    square = errors**2
    penalty = np.diag([1e-9, *[RIDGE] * (x.shape[1] - 1)]) * len(x)
    weights = np.zeros(x.shape[1])
    weights[0] = np.log(square.mean() + 1e-24) / 2
    for _ in range(50):
        ratio = square * np.exp(-2 * np.clip(x @ weights, -30, 30))
        gradient = x.T @ (1 - ratio) + penalty @ weights
        curvature = x.T @ (2 * ratio[:, None] * x) + penalty
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    return weights
