"""What the estimators of whole sequences share: reading data, fitting, running the network, streaming, saving."""

from collections.abc import Hashable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kru.estimators.data import Cases, align, is_table, join, read_cases, read_symbols
from kru.estimators.fitting import Outcome, budget, saved_in, train, training_settings
from kru.estimators.hub import HubMethods
from kru.estimators.network import READOUTS, NetworkSettings, choose_settings, count_parameters
from kru.estimators.saving import save
from kru.estimators.scaling import Scaling
from kru.estimators.sounds import read_sounds, sound_features, stored_features
from kru.estimators.stream import Stream
from kru.estimators.task import ArrayTask
from kru.estimators.vocabulary import Vocabulary, pad
from kru.export.source import Around, Exportable
from kru.nn.model import SequenceModel
from kru.sound import SoundFeatures
from kru.training.trainer import Trainer

PREDICT_BATCH = 256
"""Sequences at once in a prediction."""
HOLD_OUT_FROM = 1000
"""Cases from which on validation_fraction="auto" holds some of them out."""


class SequenceEstimator(HubMethods, BaseEstimator):
    """A recurrent network with one output for each sequence; see `KRUClassifier` and `KRURegressor`."""

    network_: SequenceModel
    network_settings_: NetworkSettings
    scaling_: Scaling | None
    vocabulary_: Vocabulary | None
    sound_: SoundFeatures | None = None
    n_channels_: int

    # Subclasses list these in their constructors, as scikit-learn wants it.
    kind: str
    units: int | None
    factors: Any
    max_parameters: int | None
    layers: int
    bidirectional: bool
    readout: str
    dropout: float
    symbols: bool
    differences: bool
    missing: str
    features: Any = None
    sample_rate: int | None = None
    augment: int = 0
    steps: int | None
    epochs: int | None
    batch_size: int | str
    learning_rate: float
    recurrent_learning_rate: float | None
    penalty: float
    average: float
    validation_fraction: float | str
    patience: int | None
    device: str
    random_state: Any
    verbose: int
    warm_start: bool
    folder: str | Path | None

    def stream(self) -> Stream:
        """An object whose `step` takes one time step and returns the prediction so far.

        After the last step of a sequence it is what `predict` says of it. `KRUClassifier` streams have the
        probabilities so far as well.
        """
        check_is_fitted(self, "network_")
        return Stream(self)

    def save(self, path: str | Path) -> None:
        """Write everything that predictions need to one safetensors file, for `kru.estimators.load`."""
        check_is_fitted(self, "network_")
        save(self, path)

    def exportable(self) -> Exportable:
        """The network with scaling and labels, for `kru.export`: raw values go in, the prediction comes out."""
        check_is_fitted(self, "network_")
        around: Around = {
            "origin": f"{type(self).__name__} of {self.network_settings_.kind}",
            "sound": self.sound_,
        }
        if self.scaling_ is not None:
            around["scaling"] = (self.scaling_.mean, self.scaling_.scale)
            around["mask"] = self.scaling_.mask
            if self.scaling_.step is not None:
                # In raw units, so that the program can take the change before it scales.
                around["differences"] = self.scaling_.scale * self.scaling_.step
        if self.vocabulary_ is not None:
            around["symbols"] = True
            around["vocabulary"] = self.vocabulary_.plain()
        return Exportable(self.network_, **around)

    @property
    def n_parameters_(self) -> int:
        """The number of trained parameters."""
        check_is_fitted(self, "network_")
        return count_parameters(self.network_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mask"
        tags.input_tags.three_d_array = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # A trainer that was interrupted belongs to this process; what a pickle needs are the weights.
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_trainer"}

    def _read_training(self, X: Any, y: Any) -> tuple[Cases | list[list[Hashable]], Any]:
        """The sequences of a fit, and the targets in their order; sets what predictions are checked against."""
        self.sound_ = sound_features(self.features, self.sample_rate)
        self._variants: Cases | None = None
        if self.symbols:
            if self.sound_ is not None:
                raise ValueError("features: expected None for symbols, got some")
            return read_symbols(X), y
        if self.sound_ is not None:
            if self.missing != "error":
                raise ValueError(f"missing: expected 'error' with features of sounds, got {self.missing!r}")
            sounds = read_sounds(
                X, self.sound_, variants=self.augment, generator=check_random_state(self.random_state)
            )
            self._variants = sounds.variants
            self._forget_names(sounds.channels)
            return sounds.cases, align(y, sounds.cases)
        if self.augment:
            raise ValueError(f"augment: expected 0 without features of sounds, got {self.augment!r}")
        if is_table(X):
            finite = "allow-nan" if self.missing == "mask" else True
            X, y = validate_data(
                self, X, y, dtype=np.float64, ensure_all_finite=finite, multi_output=True, y_numeric=False
            )
            return read_cases(X, missing=self.missing), y
        cases = read_cases(X, missing=self.missing)
        self._forget_names(cases.channels)
        return cases, align(y, cases)

    def _forget_names(self, channels: int) -> None:
        """What scikit-learn wants to know of data that is no table."""
        self.n_features_in_ = channels
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _read(self, X: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The network's inputs (T, B, D) or symbols (T, B), and lengths."""
        check_is_fitted(self, "network_")
        if self.vocabulary_ is not None:
            return pad([self.vocabulary_.encode(sequence) for sequence in read_symbols(X)])
        assert self.scaling_ is not None
        if self.sound_ is not None:
            sounds = read_sounds(X, self.sound_)
            if sounds.channels != self.n_channels_:
                raise ValueError(f"X: expected {self.n_channels_} channels, got {sounds.channels}")
            return self.scaling_.transform(sounds.cases), sounds.cases.lengths
        if is_table(X):
            if self.n_channels_ != 1:
                raise ValueError(
                    f"X: expected {self.n_channels_} channels, (cases, channels, time), got a table of one channel"
                )
            finite = "allow-nan" if self.missing == "mask" else True
            # A network that was fitted on sequences of any length does not mind how long those of a table are.
            if self._fitted_on_table:
                X = validate_data(self, X, dtype=np.float64, ensure_all_finite=finite, reset=False)
        cases = read_cases(X, missing=self.missing)
        if cases.channels != self.n_channels_:
            raise ValueError(f"X: expected {self.n_channels_} channels, got {cases.channels}")
        return self.scaling_.transform(cases), cases.lengths

    def _prepare(
        self, sequences: Cases | list[list[Hashable]]
    ) -> tuple[NDArray[Any], NDArray[np.int64], int]:
        """Fit scaling or vocabulary: inputs, lengths and the input size."""
        if isinstance(sequences, Cases):
            mask = self.missing == "mask"
            before: Scaling | None = getattr(self, "scaling_", None) if self.warm_start else None
            asked = (sequences.channels, self.differences, mask)
            if before is None or (len(before.mean), before.step is not None, before.mask) != asked:
                self.scaling_ = Scaling.fit(sequences, differences=self.differences, mask=mask)
                self.vocabulary_ = None
                self.n_channels_ = sequences.channels if self.sound_ is None else self.n_features_in_
            assert self.scaling_ is not None
            if self._variants is not None:
                sequences = join(sequences, self._variants)
                self._variants = None
            return self.scaling_.transform(sequences), sequences.lengths, self.scaling_.size
        again = self.warm_start and getattr(self, "vocabulary_", None) is not None
        if not again:
            self.vocabulary_ = Vocabulary.of(symbol for sequence in sequences for symbol in sequence)
            self.scaling_ = None
            self.n_channels_ = 1
        assert self.vocabulary_ is not None
        inputs, lengths = pad([self.vocabulary_.encode(sequence) for sequence in sequences])
        return inputs, lengths, self.vocabulary_.size

    def _fit(
        self,
        make_task: Any,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        sizes: tuple[int, int],
        *,
        part: str = "",
        from_weights: bool = True,
    ) -> Outcome:
        """Train, or continue training.

        Args:
            make_task: `make_task(held_out)` makes the task.
            sizes: inputs and outputs.
            part: of a fit that trains several times, which of them; its checkpoints have a folder of their own.
            from_weights: whether a warm start may begin with the weights of the last fit.
        """
        if self.readout not in READOUTS:
            raise ValueError(f"readout: expected one of {', '.join(READOUTS)}, got {self.readout!r}")
        cases = len(targets)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held_out = self._held_out(cases, targets, seed)
        settings = choose_settings(
            kind=self.kind,
            units=self.units,
            factors=self.factors,
            max_parameters=self.max_parameters,
            layers=self.layers,
            bidirectional=self.bidirectional,
            readout=self.readout,
            inputs=sizes[0],
            outputs=sizes[1],
            symbols=inputs.ndim == 2,
            dropout=self.dropout,
        )
        batch = self._batch_size(cases - len(held_out))
        training = training_settings(
            steps=budget(self.steps, self.epochs, cases - len(held_out), batch),
            batch_size=batch,
            learning_rate=self.learning_rate,
            recurrent_learning_rate=self.recurrent_learning_rate,
            penalty=self.penalty,
            average=self.average,
            patience=self.patience,
            seed=seed,
        )
        task: ArrayTask = make_task(held_out)
        data = task.digest()
        start, trainer = None, None
        if self.warm_start and getattr(self, "network_settings_", None) == settings:
            start = self.network_.state_dict() if from_weights else None
            interrupted: tuple[Trainer, str] | None = getattr(self, "_trainer", None)
            if interrupted is not None and interrupted[1] == data:
                trainer = interrupted[0]
        outcome: Outcome = train(
            settings,
            trainer.task if trainer is not None else task,
            trainer.settings if trainer is not None else training,
            device=self.device,
            verbose=bool(self.verbose),
            name=type(self).__name__,
            start=start,
            trainer=trainer,
            saved=saved_in(self, data, part),
        )
        self.network_ = outcome.network
        self.network_settings_ = settings
        self.n_steps_ = outcome.steps
        self.loss_ = outcome.loss
        self._trainer = None if outcome.trainer is None else (outcome.trainer, data)
        return outcome

    def _batch_size(self, cases: int) -> int:
        if self.batch_size == "auto":
            return 16 if cases < 1000 else 32 if cases < 10_000 else 64
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise ValueError(f'batch_size: expected a positive integer or "auto", got {self.batch_size!r}')
        return self.batch_size

    def _held_out(self, cases: int, targets: NDArray[Any], seed: int) -> NDArray[np.int64]:
        """The cases of the validation split, at random, of each class as many in proportion."""
        fraction = self.validation_fraction
        if fraction == "auto":
            fraction = 0.1 if cases >= HOLD_OUT_FROM else 0.0
        if isinstance(fraction, str) or not 0 <= fraction < 1:
            raise ValueError(f'validation_fraction: expected "auto" or 0 to below 1, got {fraction!r}')
        order = np.random.RandomState(seed).permutation(cases)
        if targets.dtype.kind == "i":
            order = order[np.argsort(targets[order], kind="stable")]
        count = int(fraction * cases)
        if count == 0:
            return order[:0].astype(np.int64)
        return np.sort(order[np.linspace(0, cases - 1, count).round().astype(int)]).astype(np.int64)

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        """What the network says of sequences, (B, C)."""
        inputs, lengths = self._read(X)
        device = next(self.network_.parameters()).device
        # Neighbours of similar length need the least padding.
        order = np.argsort(lengths, kind="stable")
        outputs = np.empty((len(lengths), self.network_settings_.outputs))
        with torch.inference_mode():
            for first in range(0, len(order), PREDICT_BATCH):
                columns = order[first : first + PREDICT_BATCH]
                longest = int(lengths[columns].max())
                part = torch.from_numpy(np.ascontiguousarray(inputs[:longest, columns])).to(device)
                out, _ = self.network_(part, None, torch.from_numpy(lengths[columns]))
                outputs[columns] = out.cpu().numpy()
        return outputs

    @property
    def _fitted_on_table(self) -> bool:
        return self.n_channels_ == 1 and getattr(self, "n_features_in_", 1) != 1

    def _finish(self, outputs: NDArray[np.float64]) -> Any:
        """Predictions from what the network says, (B, C)."""
        raise NotImplementedError

    def _scalings(self) -> dict[str, Scaling]:
        """What a file holds of scalings, by name."""
        return {} if self.scaling_ is None else {"scaling": self.scaling_}

    def _fitted(self) -> dict[str, Any]:
        """What a file holds besides settings, weights, scalings and vocabulary; values for JSON."""
        return {
            "channels": self.n_channels_,
            "features": getattr(self, "n_features_in_", self.n_channels_),
            "sound": None if self.sound_ is None else asdict(self.sound_),
        }

    def _restore(self, fitted: dict[str, Any], scalings: dict[str, Scaling]) -> None:
        """The opposite of `_fitted` and `_scalings`; raises ValueError for what does not fit the network."""
        self.n_channels_, self.n_features_in_ = fitted["channels"], fitted["features"]
        self.scaling_ = scalings.get("scaling")
        self.sound_ = stored_features(fitted.get("sound"))
        size = (
            self.scaling_.size
            if self.scaling_ is not None
            else self.vocabulary_.size
            if self.vocabulary_
            else 0
        )
        if (
            size != self.network_settings_.inputs
            or (self.vocabulary_ is None) == self.network_settings_.symbols
        ):
            raise ValueError(f"network: expected {size} inputs, got {self.network_settings_.inputs}")
        values = self.n_channels_ * (1 if self.sound_ is None else self.sound_.size)
        if self.scaling_ is not None and values != len(self.scaling_.mean):
            raise ValueError(f"channels: expected means of {values} values, got {len(self.scaling_.mean)}")
