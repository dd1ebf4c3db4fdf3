"""The equations of a linear read-out as a triangular factor: all digits of the states count."""

from typing import Self

import torch
from torch import Tensor

from kru.reservoir.equations import Equations, Linear, Spectrum


class TriangularEquations(Equations):
    """The triangular factor R of the rows [1 f y], by QR decompositions of one chunk after the other.

    R'R are the sums that `NormalEquations` has, but they are never formed, so that no digits are lost: directions of
    the state that are 10^-15 of the largest still count. Long forecasts in free run need them. Memory a few S^2, and
    more time. The first row of R belongs to the intercept; what follows is the factor of the centred
    rows.

    >>> import torch
    >>> equations = TriangularEquations(2, 1)
    >>> features = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 3.0]])
    >>> equations.add(features, features @ torch.tensor([[1.0], [2.0]]) + 5)
    >>> [values.round(decimals=9).tolist() for values in equations.solve(0.0)]
    [[[1.0, 2.0]], [5.0]]
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self._width = 1 + features + outputs
        self._parts = [torch.zeros(0, self._width, dtype=torch.float64)]

    def add(self, features: Tensor, targets: Tensor) -> None:
        f, y = features.double(), targets.double()
        self.count += len(f)
        for rows in torch.split(torch.cat([torch.ones_like(y[:, :1]), f, y], dim=1), 2 * self._width):
            self._parts.append(rows)
            # A decomposition repeats the work of the factor so far, so it waits for as many new rows.
            if sum(len(part) for part in self._parts[1:]) >= 2 * self._width:
                self._reduce()

    def __iadd__(self, other: Self) -> Self:
        self.count += other.count
        self._parts.append(other.factor)
        return self

    @property
    def factor(self) -> Tensor:
        """R, (1 + S + O, 1 + S + O), upper triangular."""
        if len(self._parts) > 1 or len(self._parts[0]) < self._width:
            self._reduce()
        return self._parts[0]

    def _reduce(self) -> None:
        stacked = torch.cat(self._parts)
        if len(stacked) < self._width:
            stacked = torch.cat([stacked, stacked.new_zeros(self._width - len(stacked), self._width)])
        self._parts = [torch.linalg.qr(stacked, mode="r").R]

    @property
    def means(self) -> tuple[Tensor, Tensor]:
        first = self.factor[0] / self.factor[0, 0]
        return first[1 : 1 + self.features], first[1 + self.features :]

    def _centred(self) -> tuple[Tensor, Tensor]:
        """The factor (S, S) of the centred features and the part (S, O) of the targets in their span."""
        inside = self.factor[1 : 1 + self.features]
        return inside[:, 1 : 1 + self.features], inside[:, 1 + self.features :]

    def solve(self, strength: float) -> Linear:
        self.expect_rows()
        root, targets = self._centred()
        if strength > 0:
            below = torch.eye(self.features, self.features + self.outputs, dtype=torch.float64)
            stacked = torch.cat([torch.cat([root, targets], dim=1), strength**0.5 * below])
            reduced = torch.linalg.qr(stacked, mode="r").R[: self.features]
            root, targets = reduced[:, : self.features], reduced[:, self.features :]
        pivots = root.diagonal().abs()
        if strength == 0 and pivots.min() < 1e-14 * self.features * pivots.max():
            raise self.singular()
        return self.with_intercept(torch.linalg.solve_triangular(root, targets, upper=True).T)

    def spectrum(self) -> Spectrum:
        root, targets = self._centred()
        left, values, right = torch.linalg.svd(root)
        return Spectrum(values.square(), right.T, values.unsqueeze(1) * (left.T @ targets))

    def squared_error(self, linear: Linear) -> float:
        eye = torch.eye(self.outputs, dtype=torch.float64)
        residual = self.factor @ torch.cat([-linear.bias.unsqueeze(0), -linear.weight.T, eye])
        return float(residual.square().sum())
