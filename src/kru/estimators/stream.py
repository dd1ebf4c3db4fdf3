"""Predictions while a sequence comes in, one time step at a time."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kru.nn.states import State


class Stream:
    """The state of one sequence.

    Args:
        estimator: a fitted classifier or regressor, in one direction.
    """

    def __init__(self, estimator: Any) -> None:
        if estimator.network_settings_.bidirectional:
            raise ValueError(
                "stream: expected an estimator with bidirectional=False, got one that reads sequences backwards too"
            )
        self._estimator = estimator
        self.reset()

    def reset(self) -> None:
        """Begin a new sequence."""
        self.steps = 0
        self._heard: list[NDArray[np.float64]] = []
        self._state: State | None = None
        self._before: NDArray[np.float64] | None = None
        self._sum: torch.Tensor | None = None
        self._outputs: NDArray[np.float64] | None = None

    def step(self, x: Any) -> Any:
        """Take the values of one time step, (channels,), a number for one channel, or a symbol.

        Of a model with features of sounds a step is one sample; there is a prediction from the first window on.

        Returns:
            the prediction for the sequence so far; None before the first window.
        """
        estimator = self._estimator
        if estimator.vocabulary_ is not None:
            return self._advance(torch.from_numpy(estimator.vocabulary_.encode([x])))
        values = self._values(x)
        if estimator.sound_ is not None:
            self._heard.append(values)
            if len(self._heard) < estimator.sound_.window:
                return None if self._outputs is None else self.prediction
            values = estimator.sound_.of_windows(np.array(self._heard).T).reshape(-1)
            del self._heard[: estimator.sound_.hop]
        z = estimator.scaling_.standardise(values)
        before = z if self._before is None else self._before
        self._before = z
        return self._advance(torch.from_numpy(estimator.scaling_.inputs(z, before))[None])

    def _advance(self, inputs: torch.Tensor) -> Any:
        """One step of the network, with inputs (1, D) or symbols (1,)."""
        network = self._estimator.network_
        device = next(network.parameters()).device
        with torch.inference_mode():
            states, self._state = network.layer.step(inputs.to(device), self._state)
            self.steps += 1
            if network.readout == "mean":
                self._sum = states if self._sum is None else self._sum + states
                states = self._sum / self.steps
            self._outputs = network.output(states).cpu().numpy().astype(np.float64)
        return self.prediction

    @property
    def prediction(self) -> Any:
        """The prediction so far: a label, or a value (several for several targets)."""
        return self._estimator._finish(self._seen())[0]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of a classifier: the probability of each of `classes_` so far."""
        probabilities: NDArray[np.float64] = self._estimator._probabilities(self._seen())[0]
        return probabilities

    def _seen(self) -> NDArray[np.float64]:
        if self._outputs is None:
            raise ValueError("stream: expected at least one step, got none")
        return self._outputs

    def _values(self, x: Any) -> NDArray[np.float64]:
        """The values of a step, (channels,), checked."""
        estimator = self._estimator
        values = np.atleast_1d(np.asarray(x, dtype=np.float64))
        if values.shape != (estimator.n_channels_,):
            raise ValueError(f"x: expected {estimator.n_channels_} values, got shape {np.shape(x)}")
        may_miss = estimator.missing == "mask" and estimator.sound_ is None
        if not (~np.isinf(values) if may_miss else np.isfinite(values)).all():
            raise ValueError(f"x: expected finite values, got {values.tolist()} at step {self.steps}")
        return values
