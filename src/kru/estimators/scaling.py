"""Standardisation and differences: what is done to values before the network, as part of the model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kru.estimators.data import Cases

CONSTANT = 1e-12
"""A channel whose deviation is below this part of its mean is constant but for rounding, and stays unscaled."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """What the network reads, D values at each step and whatever is asked for besides, in this order::

        z_t = (x_t - mean) / scale                0 where x_t is missing
        (z_t - z_{t-1}) / step                    with differences; 0 at the first step, and where either is missing
        1 where x_t is missing, 0 elsewhere       with a mask

    Everything is computed in double precision and then rounded to float32.

    Attributes:
        mean, scale: (D,), of the training data.
        step: (D,), the root mean square of z_t - z_{t-1} in the training data; None for no differences.
        mask: whether missing values are marked.
    """

    mean: Values
    scale: Values
    step: Values | None = None
    mask: bool = False

    @property
    def size(self) -> int:
        """How many values the network reads at each step."""
        return len(self.mean) * (1 + (self.step is not None) + self.mask)

    @staticmethod
    def fit(cases: Cases, *, differences: bool = False, mask: bool = False) -> "Scaling":
        """Mean and deviation of every channel over all real steps that are not missing."""
        real = cases.real()
        plain = Scaling.of(cases.values[real])
        if not differences:
            return Scaling(plain.mean, plain.scale, None, mask)
        z = (cases.values - plain.mean) / plain.scale
        change = (z[1:] - z[:-1])[real[1:]]
        present = ~np.isnan(change)
        square = np.where(present, change, 0.0) ** 2
        step = np.sqrt(square.sum(0) / np.maximum(present.sum(0), 1))
        return Scaling(plain.mean, plain.scale, np.where(step > CONSTANT, step, 1.0), mask)

    @staticmethod
    def of(values: Values) -> "Scaling":
        """Mean and deviation of the columns of values (rows, D)."""
        present = ~np.isnan(values)
        count = np.maximum(present.sum(0), 1)
        mean = np.where(present, values, 0.0).sum(0) / count
        deviation = np.sqrt((np.where(present, values - mean, 0.0) ** 2).sum(0) / count)
        constant = deviation <= CONSTANT * np.maximum(np.abs(mean), 1e-300)
        return Scaling(mean, np.where(constant, 1.0, deviation))

    def standardise(self, values: Values) -> Values:
        """z of values (..., D), NaN where they are missing."""
        z: Values = (values - self.mean) / self.scale
        return z

    def undo(self, z: NDArray[np.floating]) -> Values:
        """The values that standardised ones stand for."""
        values: Values = z.astype(np.float64) * self.scale + self.mean
        return values

    def inputs(self, z: Values, before: Values) -> NDArray[np.float32]:
        """What the network reads where z (..., D) follows `before`, which is z itself at the first step."""
        parts = [np.nan_to_num(z, nan=0.0)]
        if self.step is not None:
            parts.append(np.nan_to_num((z - before) / self.step, nan=0.0))
        if self.mask:
            parts.append(np.isnan(z).astype(np.float64))
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def transform(self, cases: Cases) -> NDArray[np.float32]:
        """Network inputs (T, B, `size`), zero beyond the end of each sequence."""
        z = self.standardise(cases.values)
        inputs = self.inputs(z, np.concatenate([z[:1], z[:-1]]))
        inputs[~cases.real()] = 0.0
        return inputs
