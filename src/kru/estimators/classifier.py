"""Classification of sequences."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from kru.estimators.base import SequenceEstimator
from kru.estimators.saving import plain_labels, read_labels
from kru.estimators.scaling import Scaling
from kru.estimators.task import Classification
from kru.export.source import Exportable


class KRUClassifier(ClassifierMixin, SequenceEstimator):
    """Classifies sequences with a recurrent network whose recurrent matrix is a Kronecker product.

    Sequences are an array (cases, channels, time) or (cases, time), a list of arrays (channels, time) of unequal
    lengths, a pandas frame in long form with columns ``case`` and ``time``, or, with `symbols`, strings or sequences
    of integers. Standardisation is part of the model.

    Args:
        kind: the recurrent layer: "kru-gru", "kru-lstm", "kru", or a baseline such as "gru" or "lstm".
        units: number of units; None for as many as `max_parameters` allows.
        factors: sizes of the Kronecker factors, with product `units`; None for the smallest, or with `max_parameters`
            the largest within it.
        max_parameters: upper limit of all parameters of the network.
        layers: recurrent layers on top of each other.
        bidirectional: whether to read sequences backwards too; such a model cannot stream.
        readout: what the classes are read from: "mean" of the states over time, or the "last" state.
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
        class_weight: None, "balanced", or weights by class.
        device: where to compute, such as "cpu" or "cuda".
        random_state: an integer for results that repeat exactly.
        verbose: 1 for a progress bar.
        warm_start: whether `fit` continues from the weights of the last one, after Ctrl-C exactly where it stopped.
        folder: where `fit` writes a checkpoint every 30 seconds and after Ctrl-C. With `warm_start`, a fit with the
            same settings and data continues exactly from it, in another process too.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained `kru.nn.model.SequenceModel`.
        scaling_: means and deviations of the training data; None for symbols.
        vocabulary_: the symbols of the training data; None for values.
        sound_: the `kru.sound.SoundFeatures` that are read of sounds; None for values and symbols.
        n_channels_, n_parameters_, n_steps_, loss_: what the fit saw and came to.

    >>> import numpy as np
    >>> from kru.estimators import KRUClassifier
    >>> time = np.arange(40)
    >>> X = np.stack([np.sin(time * speed) for speed in np.linspace(0.2, 0.8, 20)])
    >>> y = np.where(np.arange(20) < 10, "slow", "fast")
    >>> model = KRUClassifier(steps=60, random_state=0).fit(X, y)
    >>> model.predict(X[[0, -1]]).tolist()
    ['slow', 'fast']
    """

    classes_: NDArray[Any]

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
        class_weight: Any = None,
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
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.folder = folder

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on sequences and their labels; Ctrl-C ends it early, with a fitted model."""
        sequences, y = self._read_training(X, y)
        if y is None:
            raise ValueError("y: requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_consistent_length(range(len(sequences)), y)
        check_classification_targets(y)
        classes, targets = np.unique(y, return_inverse=True)
        if self.warm_start and hasattr(self, "classes_") and not np.array_equal(classes, self.classes_):
            raise ValueError(f"y: expected the classes of the last fit, {self.classes_}, got {classes}")
        self.classes_ = classes
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, np.empty((len(y), 1)), ensure_non_negative=True)
        if self.class_weight is not None:
            balance = compute_sample_weight(self.class_weight, y)
            weights = balance if weights is None else weights * balance
        inputs, lengths, size = self._prepare(sequences)
        targets = targets.astype(np.int64)

        def task(held_out: NDArray[np.int64]) -> Classification:
            return Classification(
                inputs,
                lengths,
                targets,
                weights=weights,
                held_out=held_out,
                input_size=size,
                output_size=len(classes),
            )

        self._fit(task, inputs, targets, (size, len(classes)))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each sequence, (cases,)."""
        return self._finish(self._outputs(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each of `classes_` for each sequence, (cases, classes)."""
        return self._probabilities(self._outputs(X))

    def exportable(self) -> Exportable:
        """The network with scaling, softmax and labels, for `kru.export`: raw values go in, a label comes out."""
        one, *others = self.classes_.tolist()
        # The program of a single class has one output, and says the same on both sides of it.
        labels = [one, *others] if others else [one, one]
        return replace(super().exportable(), labels=labels, probabilities=bool(others))

    def _finish(self, outputs: NDArray[np.float64]) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[outputs.argmax(1)]
        return labels

    def _probabilities(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        powers = np.exp(outputs - outputs.max(1, keepdims=True))
        probabilities: NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
        return probabilities

    def _fitted(self) -> dict[str, Any]:
        return {**super()._fitted(), "classes": plain_labels(self.classes_)}

    def _restore(self, fitted: dict[str, Any], scalings: dict[str, Scaling]) -> None:
        super()._restore(fitted, scalings)
        self.classes_ = read_labels(fitted.get("classes"))
        if len(self.classes_) != self.network_settings_.outputs:
            raise ValueError(
                f"classes: expected {self.network_settings_.outputs} labels, got {len(self.classes_)}"
            )
