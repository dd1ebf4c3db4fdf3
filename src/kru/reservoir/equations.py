"""What ridge regression needs of its rows, however they are summed up."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Self

from torch import Tensor


class Linear(NamedTuple):
    """y = V f + c: V is `weight` (O, S), c is `bias` (O,)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return features.to(self.weight.dtype) @ self.weight.T + self.bias


class Spectrum(NamedTuple):
    """G = Q diag(values) Q' of the centred features, `vectors` Q (S, S), and Q' C, `turned` (S, O)."""

    values: Tensor
    vectors: Tensor
    turned: Tensor


class Equations(ABC):
    """The equations of ridge regression over rows f (S,) and y (O,), added up chunk by chunk in float64.

    With the centred sums G = sum (f - mean)(f - mean)' and C = sum (f - mean)(y - mean)', the read-out of strength a is
    (G + a)^-1 C; the intercept is not regularised.
    """

    def __init__(self, features: int, outputs: int) -> None:
        self.features, self.outputs, self.count = features, outputs, 0

    @abstractmethod
    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add rows: features (n, S), targets (n, O)."""

    @abstractmethod
    def __iadd__(self, other: Self) -> Self:
        """Add the rows of others."""

    @property
    @abstractmethod
    def means(self) -> tuple[Tensor, Tensor]:
        """Means of f (S,) and of y (O,)."""

    @abstractmethod
    def solve(self, strength: float) -> Linear:
        """argmin sum |V f + c - y|^2 + strength |V|^2, the intercept c not regularised."""

    @abstractmethod
    def spectrum(self) -> Spectrum:
        """The eigenvalues and eigenvectors of G, which solve the equations for any strength."""

    @abstractmethod
    def squared_error(self, linear: Linear) -> float:
        """sum |V f + c - y|^2 over the rows."""

    def path(self, strengths: list[float]) -> list[Linear]:
        """`solve` for many strengths above zero, by one decomposition."""
        self.expect_rows()
        values, vectors, turned = self.spectrum()
        return [
            self.with_intercept((vectors @ (turned / (values + strength).unsqueeze(1))).T)
            for strength in strengths
        ]

    def with_intercept(self, weight: Tensor) -> Linear:
        """The read-out with these weights (O, S) and the intercept that belongs to them."""
        f, y = self.means
        return Linear(weight, y - weight @ f)

    def expect_rows(self) -> None:
        """Raise with fewer than two rows."""
        if self.count < 2:
            raise ValueError(
                f"washout: expected at least two steps after the washout to fit the read-out, got {self.count}"
            )

    def singular(self) -> ValueError:
        """The error of dependent features without regularisation."""
        return ValueError(
            f"ridge: the {self.features} features of {self.count} steps are linearly dependent, so the read-out is "
            "singular without regularisation; expected a strength above zero, got 0"
        )
