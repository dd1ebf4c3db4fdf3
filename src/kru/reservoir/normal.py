"""Normal equations of a linear read-out, added up chunk by chunk in double precision."""

from typing import NamedTuple

import torch
from torch import Tensor


class Linear(NamedTuple):
    """y = V f + c: V is `weight` (O, S), c is `bias` (O,)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return features.to(self.weight.dtype) @ self.weight.T + self.bias


class NormalEquations:
    """Sums over rows f (S,) and y (O,): how many, sum f, sum y, sum f f', sum f y' and sum y^2, in float64.

    Everything that ridge regression and its blocked cross-validation need. Memory S^2, whatever the number of rows.

    >>> import torch
    >>> equations = NormalEquations(2, 1)
    >>> features = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 3.0]])
    >>> equations.add(features, features @ torch.tensor([[1.0], [2.0]]) + 5)
    >>> [values.round(decimals=9).tolist() for values in equations.solve(0.0)]
    [[[1.0, 2.0]], [5.0]]
    """

    def __init__(self, features: int, outputs: int) -> None:
        self.count = 0
        self.sum_f = torch.zeros(features, dtype=torch.float64)
        self.sum_y = torch.zeros(outputs, dtype=torch.float64)
        self.gram = torch.zeros(features, features, dtype=torch.float64)
        self.cross = torch.zeros(features, outputs, dtype=torch.float64)
        self.square = torch.zeros(outputs, dtype=torch.float64)

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add rows: features (n, S), targets (n, O)."""
        f, y = features.double(), targets.double()
        self.count += len(f)
        self.sum_f += f.sum(0)
        self.sum_y += y.sum(0)
        self.gram.addmm_(f.T, f)
        self.cross.addmm_(f.T, y)
        self.square += y.square().sum(0)

    def __iadd__(self, other: "NormalEquations") -> "NormalEquations":
        return self._combine(other, 1)

    def __isub__(self, other: "NormalEquations") -> "NormalEquations":
        return self._combine(other, -1)

    def _combine(self, other: "NormalEquations", sign: int) -> "NormalEquations":
        self.count += sign * other.count
        for name in ("sum_f", "sum_y", "gram", "cross", "square"):
            getattr(self, name).add_(getattr(other, name), alpha=sign)
        return self

    @property
    def means(self) -> tuple[Tensor, Tensor]:
        return self.sum_f / self.count, self.sum_y / self.count

    def centred(self) -> tuple[Tensor, Tensor]:
        """sum (f - mean)(f - mean)' and sum (f - mean)(y - mean)': what is left once the intercept is fitted."""
        f, y = self.means
        return self.gram - self.count * torch.outer(f, f), self.cross - self.count * torch.outer(f, y)

    def with_intercept(self, weight: Tensor) -> Linear:
        """The read-out with these weights (O, S) and the intercept that belongs to them."""
        f, y = self.means
        return Linear(weight, y - weight @ f)

    def solve(self, strength: float) -> Linear:
        """argmin sum |V f + c - y|^2 + strength |V|^2, the intercept c not regularised."""
        self._expect_rows()
        gram, cross = self.centred()
        gram.diagonal().add_(strength)
        root, failed = torch.linalg.cholesky_ex(gram)
        pivots = root.diagonal().square()
        if strength == 0 and (failed or pivots.min() < 1e-14 * len(gram) * pivots.max()):
            raise ValueError(
                f"ridge: the {len(gram)} features of {self.count} steps are linearly dependent, so the read-out is "
                "singular without regularisation; expected a strength above zero, got 0"
            )
        if failed:  # rounding took the place of eigenvalues far below the largest
            values, vectors = torch.linalg.eigh(self.centred()[0])
            weight = vectors @ ((vectors.T @ cross) / (values.clamp(min=0) + strength).unsqueeze(1))
            return self.with_intercept(weight.T)
        return self.with_intercept(torch.cholesky_solve(cross, root).T)

    def path(self, strengths: list[float]) -> list[Linear]:
        """`solve` for many strengths above zero, by one eigendecomposition."""
        self._expect_rows()
        gram, cross = self.centred()
        values, vectors = torch.linalg.eigh(gram)
        values, turned = values.clamp(min=0), vectors.T @ cross
        return [
            self.with_intercept((vectors @ (turned / (values + strength).unsqueeze(1))).T)
            for strength in strengths
        ]

    def squared_error(self, linear: Linear) -> float:
        """sum |V f + c - y|^2 over the rows, from the sums alone."""
        v, c = linear.weight.T, linear.bias
        products = (
            ((self.gram @ v) * v).sum(0)
            - 2 * (self.cross * v).sum(0)
            + self.square
            + self.count * c * c
            + 2 * c * (v.T @ self.sum_f - self.sum_y)
        )
        return float(products.clamp(min=0).sum())

    def _expect_rows(self) -> None:
        if self.count < 2:
            raise ValueError(
                f"washout: expected at least two steps after the washout to fit the read-out, got {self.count}"
            )
