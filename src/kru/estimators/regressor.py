"""Regression: values that belong to a sequence."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_array, check_consistent_length

from kru.estimators.base import SequenceEstimator
from kru.estimators.scaling import Scaling
from kru.estimators.task import Regression
from kru.export.source import Exportable


class KRURegressor(RegressorMixin, SequenceEstimator):
    """Predicts one value, or several, for each sequence: a recurrent network as that of `KRUClassifier`.

    Sequences are what `KRUClassifier` takes. Inputs and targets are standardised as part of the model.

    Args:
        kind: the recurrent layer: "kru-gru", "kru-lstm", "kru", or a baseline such as "gru" or "lstm".
        units: number of units; None for as many as `max_parameters` allows.
        factors: sizes of the Kronecker factors, with product `units`; None for the smallest, or with `max_parameters`
            the largest within it.
        max_parameters: upper limit of all parameters of the network.
        layers: recurrent layers on top of each other.
        bidirectional: whether to read sequences backwards too; such a model cannot stream.
        readout: what the values are read from: "mean" of the states over time, or the "last" state.
        dropout: probability with which what is read is hidden while training.
        symbols: whether sequences are symbols instead of values.
        differences: whether the network also reads the change since the step before.
        missing: "error", or "mask" to accept NaN and to tell the network where it was.
        features: of sounds, what the network reads instead of samples: "mfcc", "log-mel", or a dict with this `kind`
            and further settings of `kru.sound.SoundFeatures.of`. It is part of the model and of exported programs.
        sample_rate: of sounds with features, samples in a second.
        augment: of sounds with features, how many variants of each training case to train on besides; see
            `kru.sound.vary`.
        steps, epochs: budget of the training; None for 600 steps, or 20 epochs where that is more.
        batch_size: sequences in a step; "auto" for 16, of 1,000 cases and more 32, of 10,000 and more 64.
        learning_rate: Adam's, at the beginning; it falls to zero along half a cosine.
        recurrent_learning_rate: learning rate of the recurrent factors; None for 0.3 of the other.
        penalty: strength of the penalty that keeps the factors nearly unitary.
        average: decay of a running average of the weights; 0 for none.
        validation_fraction: part of the cases that is held out to choose the best weights and to stop early; "auto"
            for 0.1 with 1,000 cases and more, else 0.
        patience: validations without improvement, of which there are 40 in the budget, after which training stops;
            None: it does not.
        device: where to compute, such as "cpu" or "cuda".
        random_state: an integer for results that repeat exactly.
        verbose: 1 for a progress bar.
        warm_start: whether `fit` continues from the weights of the last one, after Ctrl-C exactly where it stopped.
        folder: where `fit` writes a checkpoint every 30 seconds and after Ctrl-C. With `warm_start`, a fit with the
            same settings and data continues exactly from it, in another process too.

    Attributes:
        network_: the trained `kru.nn.model.SequenceModel`.
        scaling_, target_scaling_: means and deviations of the training data.
        vocabulary_: the symbols of the training data; None for values.
        sound_: the `kru.sound.SoundFeatures` that are read of sounds; None for values and symbols.
        n_channels_, n_parameters_, n_steps_, loss_: what the fit saw and came to.

    >>> import numpy as np
    >>> from kru.estimators import KRURegressor
    >>> X = np.random.default_rng(0).uniform(size=(100, 2, 20))
    >>> model = KRURegressor(steps=200, random_state=0).fit(X, X[:, 0].mean(1))
    >>> bool(model.score(X, X[:, 0].mean(1)) > 0.9)
    True
    """

    target_scaling_: Scaling

    def __init__(
        self,
        kind: str = "kru-gru",
        units: int | None = 128,
        *,
        factors: Any = None,
        max_parameters: int | None = None,
        layers: int = 1,
        bidirectional: bool = False,
        readout: str = "mean",
        dropout: float = 0.0,
        symbols: bool = False,
        differences: bool = True,
        missing: str = "error",
        features: Any = None,
        sample_rate: int | None = None,
        augment: int = 0,
        steps: int | None = None,
        epochs: int | None = None,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-2,
        recurrent_learning_rate: float | None = None,
        penalty: float = 1e-2,
        average: float = 0.0,
        validation_fraction: float | str = "auto",
        patience: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        folder: str | Path | None = None,
    ) -> None:
        self.kind = kind
        self.units = units
        self.factors = factors
        self.max_parameters = max_parameters
        self.layers = layers
        self.bidirectional = bidirectional
        self.readout = readout
        self.dropout = dropout
        self.symbols = symbols
        self.differences = differences
        self.missing = missing
        self.features = features
        self.sample_rate = sample_rate
        self.augment = augment
        self.steps = steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.recurrent_learning_rate = recurrent_learning_rate
        self.penalty = penalty
        self.average = average
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.folder = folder

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on sequences and their values, (cases,) or (cases, targets); Ctrl-C ends it early."""
        sequences, y = self._read_training(X, y)
        if y is None:
            raise ValueError("y: requires y to be passed, but the target y is None")
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if y.ndim not in (1, 2):
            raise ValueError(f"y: expected (cases,) or (cases, targets), got shape {y.shape}")
        check_consistent_length(range(len(sequences)), y)
        self._single = y.ndim == 1
        values = y.reshape(len(y), -1)
        again = self.warm_start and hasattr(self, "target_scaling_")
        if not (again and len(self.target_scaling_.mean) == values.shape[1]):
            self.target_scaling_ = Scaling.of(values)
        targets = self.target_scaling_.standardise(values).astype(np.float32)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, np.empty((len(y), 1)), ensure_non_negative=True)
        inputs, lengths, size = self._prepare(sequences)

        def task(held_out: NDArray[np.int64]) -> Regression:
            return Regression(
                inputs,
                lengths,
                targets,
                weights=weights,
                held_out=held_out,
                input_size=size,
                output_size=targets.shape[1],
            )

        self._fit(task, inputs, targets, (size, targets.shape[1]))
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The value of each sequence, (cases,), or (cases, targets) as in the fit."""
        return self._finish(self._outputs(X))

    def exportable(self) -> Exportable:
        """The network with the scaling of inputs and targets, for `kru.export`: raw values go in and come out."""
        scaling = self.target_scaling_
        return replace(super().exportable(), target_scaling=(scaling.mean, scaling.scale))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _finish(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        values = self.target_scaling_.undo(outputs)
        return values[:, 0] if self._single else values

    def _scalings(self) -> dict[str, Scaling]:
        return {**super()._scalings(), "target": self.target_scaling_}

    def _fitted(self) -> dict[str, Any]:
        return {**super()._fitted(), "single": self._single}

    def _restore(self, fitted: dict[str, Any], scalings: dict[str, Scaling]) -> None:
        super()._restore(fitted, scalings)
        self._single = bool(fitted["single"])
        self.target_scaling_ = scalings["target"]
        if len(self.target_scaling_.mean) != self.network_settings_.outputs:
            raise ValueError(f"target: expected {self.network_settings_.outputs} means")
