"""Language models of any text, by characters or bytes."""

import hashlib
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kru.estimators.fitting import saved_in, train, training_settings
from kru.estimators.hub import HubMethods
from kru.estimators.network import FACTORED, NetworkSettings, choose_settings, count_parameters
from kru.estimators.saving import save
from kru.estimators.scaling import Scaling
from kru.estimators.text import TextTask, hold_out
from kru.estimators.vocabulary import Vocabulary
from kru.export.source import Exportable
from kru.linalg.factors import choose_factors, prime_factors
from kru.nn.model import SequenceModel
from kru.nn.states import State
from kru.training.evaluate import evaluate

Text = str | bytes

LARGEST_FACTOR = 16


class KRULanguageModel(HubMethods, BaseEstimator):
    """Predicts each character of a text from those before it, with a recurrent network.

    The vocabulary is that of the training text, and is saved with the model. Other characters count as one unknown
    symbol.

    Args:
        kind, units, max_parameters, layers, dropout: the network, see `KRUClassifier`.
        factors: sizes of the Kronecker factors; None for the largest up to 16, or with `max_parameters` within it.
        symbols: "characters", or "bytes" of the text in UTF-8.
        steps, epochs: budget of the training; None for 20 epochs, at least 600 and at most 6,000 steps.
        batch_size: streams into which the text is cut.
        window: steps through which a gradient flows; the state is carried further.
        learning_rate, recurrent_learning_rate, penalty, average: see `KRUClassifier`.
        validation_fraction: the part of the text, in eight pieces, that is held out to choose the best weights.
        patience, device, random_state, verbose, warm_start, folder: see `KRUClassifier`.

    Attributes:
        vocabulary_: the symbols.
        network_: the trained network.
        n_parameters_, n_steps_: its size, and the steps of the training.
        loss_: bits per symbol on what was held out.

    >>> from kru.estimators import KRULanguageModel
    >>> model = KRULanguageModel(units=16, steps=150, random_state=0).fit("the cat sat on the mat. " * 40)
    >>> model.bits_per_character("the cat sat on the mat. ") < 1.5
    True
    >>> len(model.sample("the c", length=10, random_state=0))
    10
    """

    network_: SequenceModel
    network_settings_: NetworkSettings
    vocabulary_: Vocabulary

    def __init__(
        self,
        kind: str = "kru-gru",
        units: int | None = 256,
        *,
        factors: Any = None,
        max_parameters: int | None = None,
        layers: int = 1,
        dropout: float = 0.0,
        symbols: str = "characters",
        steps: int | None = None,
        epochs: int | None = None,
        batch_size: int = 32,
        window: int = 64,
        learning_rate: float = 1e-2,
        recurrent_learning_rate: float | None = None,
        penalty: float = 1e-2,
        average: float = 0.0,
        validation_fraction: float = 0.05,
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
        self.dropout = dropout
        self.symbols = symbols
        self.steps = steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.window = window
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

    def fit(self, X: Text, y: None = None) -> Self:
        """Train on a text; Ctrl-C ends it early, with a fitted model."""
        text = self._symbols(X, "X")
        if len(text) < 2:
            raise ValueError(f"X: expected a text of at least two symbols, got {len(text)}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction: expected 0 to below 1, got {self.validation_fraction!r}")
        again = self.warm_start and hasattr(self, "vocabulary_")
        vocabulary = self.vocabulary_ if again else Vocabulary.of(text)
        codes = vocabulary.encode(text)
        size = vocabulary.size
        settings = choose_settings(
            kind=self.kind,
            units=self.units,
            factors=self._factors(),
            max_parameters=self.max_parameters,
            layers=self.layers,
            bidirectional=False,
            readout="all",
            inputs=size,
            outputs=size,
            symbols=True,
            dropout=self.dropout,
        )
        training, valid = hold_out(codes, self.validation_fraction)
        # A short text has fewer streams, so that each has a past to learn from.
        streams = max(1, min(self.batch_size, len(training) // self.window))
        an_epoch = -(-len(training) // (streams * self.window))
        steps = min(b for b in (self.steps, self.epochs and self.epochs * an_epoch, 2**62) if b)
        if steps == 2**62:
            steps = min(max(600, 20 * an_epoch), 6000)
        start = self.network_.state_dict() if again and self.network_settings_ == settings else None
        interrupted = getattr(self, "_trainer", None) if start is not None else None
        trainer = interrupted[0] if interrupted is not None and interrupted[1] == text else None
        task = TextTask(training, valid, size=size, start=size - 1, window=self.window)
        outcome = train(
            settings,
            task if trainer is None else trainer.task,
            training_settings(
                steps=steps,
                batch_size=streams,
                learning_rate=self.learning_rate,
                recurrent_learning_rate=self.recurrent_learning_rate,
                penalty=self.penalty,
                average=self.average,
                patience=self.patience,
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            )
            if trainer is None
            else trainer.settings,
            device=self.device,
            verbose=bool(self.verbose),
            name=type(self).__name__,
            start=start,
            trainer=trainer,
            saved=saved_in(self, hashlib.sha256(codes.tobytes()).hexdigest()),
        )
        self.vocabulary_ = vocabulary
        self.network_, self.network_settings_ = outcome.network, settings
        self.n_steps_, self.loss_ = outcome.steps, outcome.loss
        self._trainer = None if outcome.trainer is None else (outcome.trainer, text)
        return self

    def bits_per_character(self, X: Text) -> float:
        """The mean of -log2 p over the symbols of a text, each predicted from all before it."""
        check_is_fitted(self, "network_")
        codes = self.vocabulary_.encode(self._symbols(X, "X"))
        if len(codes) == 0:
            raise ValueError("X: expected a text, got an empty one")
        size = self.vocabulary_.size
        task = TextTask(codes[:0], codes, size=size, start=size - 1, window=1024)
        bits = evaluate(self.network_, task, "valid", 1)
        self.network_.eval()  # the trainer's evaluation leaves a network ready for training
        return bits

    def score(self, X: Text, y: None = None) -> float:
        """Minus the bits per character: higher is better."""
        return -self.bits_per_character(X)

    def sample(
        self,
        prompt: Text = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        random_state: Any = None,
    ) -> Text:
        """A text that continues the prompt, without the prompt; bytes if the model is of bytes.

        Args:
            temperature: below 1 for likelier symbols; 0 for the likeliest always.
            top_k: draw only from so many likeliest symbols.
        """
        pieces = list(
            self.generate(prompt, length, temperature=temperature, top_k=top_k, random_state=random_state)
        )
        if self.symbols == "bytes":
            return bytes(int(str(piece)) for piece in pieces)
        return "".join(str(piece) for piece in pieces)

    def generate(
        self,
        prompt: Text = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        random_state: Any = None,
    ) -> Iterator[Hashable]:
        """The symbols of `sample`, one at a time: characters, or numbers of bytes."""
        check_is_fitted(self, "network_")
        if not temperature >= 0:
            raise ValueError(f"temperature: expected at least 0, got {temperature!r}")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k: expected at least 1, got {top_k!r}")
        generator = check_random_state(random_state)
        size = self.vocabulary_.size
        given = np.concatenate([[size - 1], self.vocabulary_.encode(self._symbols(prompt, "prompt"))])
        outputs, state = self._run(torch.from_numpy(given)[:, None], None)
        for _ in range(length):
            code = _draw(outputs[: size - 1], temperature, top_k, generator)  # never the unknown symbol
            yield self.vocabulary_.symbols[code]
            outputs, state = self._run(torch.tensor([[code]]), state)

    @property
    def n_parameters_(self) -> int:
        """The number of trained parameters."""
        check_is_fitted(self, "network_")
        return count_parameters(self.network_)

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, for `kru.estimators.load`."""
        check_is_fitted(self, "network_")
        save(self, path)

    def exportable(self) -> Exportable:
        """The network with softmax, for `kru.export`: a symbol goes in, the probabilities of the next come out.

        The number after those of the vocabulary stands for an unknown symbol, and for the beginning of a text.
        """
        check_is_fitted(self, "network_")
        return Exportable(
            self.network_,
            origin=f"{type(self).__name__} of {self.network_settings_.kind}",
            symbols=True,
            probabilities=True,
            vocabulary=self.vocabulary_.plain(),
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_trainer"}

    def _factors(self) -> Any:
        """Text needs larger factors than signals do: [16, 16] instead of eight of size 2 is 0.17 bits better."""
        wanted = self.factors is None and self.max_parameters is None and self.kind in FACTORED
        if not wanted or self.units is None or max(prime_factors(self.units)) > LARGEST_FACTOR:
            return self.factors
        return choose_factors(self.units, max_factor=LARGEST_FACTOR)

    def _symbols(self, text: Any, name: str) -> list[Hashable]:
        if self.symbols not in ("characters", "bytes"):
            raise ValueError(f"symbols: expected characters or bytes, got {self.symbols!r}")
        if not isinstance(text, str | bytes):
            raise TypeError(f"{name}: expected a text, got {type(text).__name__}")
        if self.symbols == "bytes":
            return list(text.encode() if isinstance(text, str) else text)
        if isinstance(text, bytes):
            raise TypeError(f'{name}: expected a str, or symbols="bytes", got bytes')
        return list(text)

    def _run(self, codes: torch.Tensor, state: State | None) -> tuple[NDArray[np.float64], State]:
        """The outputs after the last of some codes (T, 1), and the state."""
        device = next(self.network_.parameters()).device
        with torch.inference_mode():
            outputs, state = self.network_(codes.to(device), state, None)
        return outputs[-1, 0].cpu().numpy().astype(np.float64), state

    def _scalings(self) -> dict[str, Scaling]:
        return {}

    def _fitted(self) -> dict[str, Any]:
        return {}

    def _restore(self, fitted: dict[str, Any], scalings: dict[str, Scaling]) -> None:
        settings = self.network_settings_
        size = 0 if self.vocabulary_ is None else self.vocabulary_.size
        if not (settings.inputs == settings.outputs == size) or settings.readout != "all":
            raise ValueError(f"vocabulary: expected {settings.inputs - 1} symbols, got {size - 1}")
        wanted = int if self.symbols == "bytes" else str
        if not all(isinstance(symbol, wanted) for symbol in self.vocabulary_.symbols):
            raise ValueError(f"vocabulary: expected {self.symbols}, got other symbols")


def _draw(
    outputs: NDArray[np.float64], temperature: float, top_k: int | None, generator: np.random.RandomState
) -> int:
    if temperature == 0:
        return int(outputs.argmax())
    logits = outputs / temperature
    if top_k is not None and top_k < len(logits):
        least = np.partition(logits, -top_k)[-top_k]
        logits = np.where(logits >= least, logits, -np.inf)
    powers = np.exp(logits - logits.max())
    return int(generator.choice(len(powers), p=powers / powers.sum()))
