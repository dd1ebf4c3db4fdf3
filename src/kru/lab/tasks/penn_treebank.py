"""Penn Treebank characters: predict each character from those before it."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kru.lab.data import DataError, find
from kru.nn.model import Sizes
from kru.training.task import (
    IGNORED,
    Batch,
    Batches,
    Measure,
    Score,
    Split,
    Task,
    check_batch_size,
    cross_entropy,
    cross_entropy_score,
)

# How many steps an evaluation batch has; since the state is carried, it changes the speed and not the result.
EVALUATION_STEPS = 250

CHARACTERS = 50
"""How many different ones the text has; known without it."""


@dataclass(frozen=True)
class PennTreebank:
    """Penn Treebank characters, with back-propagation through time truncated to `bptt` steps."""

    bptt: int = 30

    @property
    def sizes(self) -> Sizes:
        return Sizes(CHARACTERS, CHARACTERS, last_only=False, symbols=True)

    @property
    def label(self) -> str:
        return "Penn Treebank characters"

    def load(self, data_dir: str | Path | None = None) -> "PennTreebankTask":
        if self.bptt < 1:
            raise ValueError(f"bptt: expected at least 1, got {self.bptt}")
        splits: tuple[Split, ...] = ("train", "valid", "test")
        texts = {split: read_characters(find(f"ptb/ptb.{split}.txt", data_dir)) for split in splits}
        return PennTreebankTask(self, texts)


def read_characters(path: Path) -> str:
    """The text with the spaces at both ends of each line taken off and each newline kept as a symbol."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8 ({error}); run `kru data fetch ptb`") from error
    if not text.strip():
        raise DataError(f"{path}: expected text, got nothing but space; run `kru data fetch ptb`")
    return "\n".join(line.strip() for line in text.split("\n"))


class PennTreebankTask(Task):
    """A split of n characters is read as B streams side by side, for any batch size B.

    Stream b is a run of n // B characters (the first n % B streams have one more), streams following each
    other in the text. Step t of a stream has as target its t-th character and as input the character before
    that in the text; before the very first stands a newline, as before every other sentence. So all n
    characters are predicted, each
    once: `lengths` says which streams miss the very last step. Batches are windows of consecutive steps of
    all streams, and all but the first carry the state of the one before. Only the first steps of a stream
    lack their past, B - 1 places in a whole split.

    The order is that of the text in every epoch, whatever the seed.
    """

    symbols = True
    carries_state = True
    measure = Measure("bits per character", lower_is_better=True)

    def __init__(self, problem: PennTreebank, texts: dict[Split, str]) -> None:
        self.problem = problem
        self.characters = "".join(sorted(set(texts["train"]) | {"\n"}))
        self.input_size = self.output_size = len(self.characters)
        self._codes = {split: self._encode(split, text) for split, text in texts.items()}
        counts = np.bincount(self._codes["train"], minlength=self.input_size).clip(1)
        bits = -np.log2(counts / counts.sum())
        self.baseline = float(bits[self._codes["test"]].mean())

    def _encode(self, split: Split, text: str) -> NDArray[np.int64]:
        unknown = sorted(set(text) - set(self.characters))
        if unknown:
            raise DataError(
                f"ptb/ptb.{split}.txt: has characters that ptb.train.txt lacks: "
                f"{' '.join(map(repr, unknown))}; run `kru data check` to find the file that was altered"
            )
        number = {character: code for code, character in enumerate(self.characters)}
        return np.array([number[character] for character in text])

    def size(self, split: Split) -> int:
        return len(self._codes[split])

    def train_batches(self, batch_size: int, *, epoch: int, seed: int) -> Batches:
        return self._windows("train", batch_size, self.problem.bptt)

    def eval_batches(self, split: Split, batch_size: int) -> Batches:
        return self._windows(split, batch_size, EVALUATION_STEPS)

    def _windows(self, split: Split, streams: int, window: int) -> Batches:
        check_batch_size(streams)
        codes = self._codes[split]
        if streams > len(codes):
            raise ValueError(
                f"batch_size: expected at most the {len(codes)} characters of {split}, got {streams}"
            )
        shortest, longer = divmod(len(codes), streams)
        lengths = shortest + (np.arange(streams) < longer)
        begins = np.concatenate([[0], lengths.cumsum()[:-1]])
        previous = np.concatenate([[self.characters.index("\n")], codes])

        def make(index: int) -> Batch:
            first = index * window
            steps = np.arange(first, min(first + window, int(lengths.max())))[:, None]
            real = steps < lengths
            # Past its end a stream repeats its last character, which is then ignored.
            places = begins + np.minimum(steps, lengths - 1)
            targets = np.where(real, codes[places], IGNORED)
            return Batch(
                torch.from_numpy(previous[places]),
                torch.from_numpy(targets),
                None if real.all() else torch.from_numpy(real.sum(axis=0)),
                carry=index > 0,
            )

        return Batches(-(-int(lengths.max()) // window), make)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        nats = cross_entropy_score(outputs, batch.targets)
        return Score(nats.total / math.log(2), nats.count)
