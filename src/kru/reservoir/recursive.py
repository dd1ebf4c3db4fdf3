"""Recursive least squares: a read-out that learns from a stream, one step at a time."""

from math import inf

import torch
from torch import Tensor

from kru.reservoir.checks import check_finite, check_share, check_size
from kru.reservoir.equations import Linear


class RecursiveLeastSquares:
    """Keeps the ridge solution of all rows so far, each row weighted by `forgetting` for every row after it.

    After n rows with ``forgetting=1`` the weights equal ridge regression's with this strength, the intercept being a
    feature of its own and regularised too. An update costs O(S^2).

    Args:
        features, outputs: S and O.
        ridge: strength of the regularisation, above zero.
        forgetting: in (0, 1]; below one, old rows fade and the read-out follows a system that changes.

    >>> import torch
    >>> online = RecursiveLeastSquares(2, 1, ridge=1e-9)
    >>> for f in torch.eye(2).tolist() * 3 + [[0.0, 0.0]]:
    ...     online.update(torch.tensor(f), torch.tensor([3 * f[0] - f[1] + 2]))
    >>> online.predict(torch.tensor([1.0, 1.0])).round(decimals=3)
    tensor([4.], dtype=torch.float64)
    """

    def __init__(self, features: int, outputs: int, *, ridge: float = 1e-3, forgetting: float = 1.0) -> None:
        self.features, self.outputs = check_size("features", features), check_size("outputs", outputs)
        if not 0 < ridge < inf:
            raise ValueError(f"ridge: expected a finite strength above zero, got {ridge}")
        self.forgetting = check_share("forgetting", forgetting)
        self.weight = torch.zeros(outputs, features + 1, dtype=torch.float64)
        self.inverse = torch.eye(features + 1, dtype=torch.float64) / ridge

    def update(self, features: Tensor, targets: Tensor) -> None:
        """Learn from one row: features (S,), targets (O,)."""
        self._check("features", features, self.features)
        self._check("targets", targets, self.outputs)
        f = _with_one(features)
        image = self.inverse @ f
        gain = image / (self.forgetting + f @ image)
        self.weight += torch.outer(targets.double() - self.weight @ f, gain)
        self.inverse = (self.inverse - torch.outer(gain, image)) / self.forgetting
        self.inverse = (self.inverse + self.inverse.T) / 2  # rounding must not make it unsymmetric

    def predict(self, features: Tensor) -> Tensor:
        """(S,) -> (O,)."""
        self._check("features", features, self.features)
        return self.weight @ _with_one(features)

    @staticmethod
    def _check(name: str, row: Tensor, size: int) -> None:
        if row.shape != (size,):
            raise ValueError(f"{name}: expected one row of {size} numbers, got shape {tuple(row.shape)}")
        check_finite(name, row)

    @property
    def linear(self) -> Linear:
        """The read-out as it stands."""
        return Linear(self.weight[:, :-1].clone(), self.weight[:, -1].clone())


def _with_one(features: Tensor) -> Tensor:
    return torch.cat([features.double(), torch.ones(1, dtype=torch.float64)])
