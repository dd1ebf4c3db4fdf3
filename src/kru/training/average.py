"""A running average of the weights, which is often better than the last of them."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from kru.matrices import RecurrentMatrix
from kru.training.fitting import expect_fitting


class WeightAverage:
    """The exponential average of the trained parameters of a model, a <- d a + (1 - d) w after each step.

    Step t has the decay d_t = min(d, (1 + t) / (10 + t)), so that the average soon forgets the initial weights.

    Args:
        model: not one with exactly unitary matrices: their average is not unitary.
        decay: d.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if any(isinstance(m, RecurrentMatrix) and m.constraint == "exact" for m in model.modules()):
            raise ValueError(
                f"average: expected 0 for a model with exactly unitary matrices, whose average is not one, got {decay}"
            )
        self.decay = decay
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.values: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, of which `step` were taken before."""
        weight = 1 - min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self._parameters.items():
            self.values[name].lerp_(parameter, weight)

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Go on from the values of another average of the same model."""
        try:
            expect_fitting(values, self.values)
        except ValueError as error:
            raise ValueError(
                f"average: expected the averages of this model's parameters, got others ({error})"
            ) from error
        for name, value in values.items():
            self.values[name].copy_(value)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Meanwhile, the model has the averaged weights."""
        own = {name: p.detach().clone() for name, p in self._parameters.items()}
        try:
            self._set(self.values)
            yield
        finally:
            self._set(own)

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(values[name])
