"""Normal equations of a linear read-out."""

from typing import Self

import torch
from torch import Tensor

from kru.reservoir.equations import Equations, Linear, Spectrum


class NormalEquations(Equations):
    """Sums over rows f (S,) and y (O,): how many, sum f, sum y, sum f f', sum f y' and sum y^2.

    The fastest, with memory S^2 whatever the number of rows. Products of features have the square of the features'
    range, so half of the digits are lost: directions of the state that are 10^-8 of the largest cannot be used.
    `TriangularEquations` can.

    >>> import torch
    >>> equations = NormalEquations(2, 1)
    >>> features = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 3.0]])
    >>> equations.add(features, features @ torch.tensor([[1.0], [2.0]]) + 5)
    >>> [values.round(decimals=9).tolist() for values in equations.solve(0.0)]
    [[[1.0, 2.0]], [5.0]]
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.sum_f = torch.zeros(features, dtype=torch.float64)
        self.sum_y = torch.zeros(outputs, dtype=torch.float64)
        self.gram = torch.zeros(features, features, dtype=torch.float64)
        self.cross = torch.zeros(features, outputs, dtype=torch.float64)
        self.square = torch.zeros(outputs, dtype=torch.float64)

    def add(self, features: Tensor, targets: Tensor) -> None:
        f, y = features.double(), targets.double()
        self.count += len(f)
        self.sum_f += f.sum(0)
        self.sum_y += y.sum(0)
        self.gram.addmm_(f.T, f)
        self.cross.addmm_(f.T, y)
        self.square += y.square().sum(0)

    def __iadd__(self, other: Self) -> Self:
        self.count += other.count
        for name in ("sum_f", "sum_y", "gram", "cross", "square"):
            getattr(self, name).add_(getattr(other, name))
        return self

    @property
    def means(self) -> tuple[Tensor, Tensor]:
        return self.sum_f / self.count, self.sum_y / self.count

    def centred(self) -> tuple[Tensor, Tensor]:
        """G and C."""
        f, y = self.means
        return self.gram - self.count * torch.outer(f, f), self.cross - self.count * torch.outer(f, y)

    def solve(self, strength: float) -> Linear:
        self.expect_rows()
        gram, cross = self.centred()
        gram.diagonal().add_(strength)
        root, failed = torch.linalg.cholesky_ex(gram)
        pivots = root.diagonal().square()
        if strength == 0 and (failed or pivots.min() < 1e-14 * len(gram) * pivots.max()):
            raise self.singular()
        if failed:  # rounding took the place of eigenvalues far below the largest
            return self.path([strength])[0]
        return self.with_intercept(torch.cholesky_solve(cross, root).T)

    def spectrum(self) -> Spectrum:
        gram, cross = self.centred()
        values, vectors = torch.linalg.eigh(gram)
        return Spectrum(values.clamp(min=0), vectors, vectors.T @ cross)

    def squared_error(self, linear: Linear) -> float:
        v, c = linear.weight.T, linear.bias
        products = (
            ((self.gram @ v) * v).sum(0)
            - 2 * (self.cross * v).sum(0)
            + self.square
            + self.count * c * c
            + 2 * c * (v.T @ self.sum_f - self.sum_y)
        )
        return float(products.clamp(min=0).sum())
