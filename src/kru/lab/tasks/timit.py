"""TIMIT frames: name the phone that is spoken in each frame of 10 ms."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kru.lab.data import DataError, data_directory, find
from kru.lab.tasks import mfcc
from kru.lab.tasks.padding import by_length, lengths_of, pad
from kru.lab.tasks.phones import FOLDED_PHONES, PHONES, fold
from kru.lab.tasks.speech_files import Utterance, open_corpus, phones_at
from kru.nn.model import Sizes
from kru.training.task import (
    IGNORED,
    Batch,
    Measure,
    Score,
    SequenceTask,
    Split,
    accuracy_score,
    cross_entropy,
)

SAMPLE = "timit/timit_nltk_sample.zip"

# Without the SA sentences, which every speaker reads: 462 speakers for training and 168 for testing, 8
# sentences each.
FULL_TRAIN, FULL_TEST = 3696, 1344
FULL_VALID_SPEAKERS = 184 // 8


@dataclass(frozen=True)
class Timit:
    """Framewise phone classification.

    Args:
        corpus: directory or zip of a corpus in TIMIT's layout. Empty: the folder ``timit`` of the data
            directory if a corpus is unpacked in it, else the sample's archive there.
        folded: 39 classes (Lee and Hon) in place of the 61 phones.
    """

    corpus: str = ""
    folded: bool = False

    @property
    def sizes(self) -> Sizes:
        return Sizes(mfcc.FEATURES, len(FOLDED_PHONES if self.folded else PHONES), last_only=False)

    @property
    def label(self) -> str:
        return f"TIMIT frames, {39 if self.folded else 61} phones"

    def load(self, data_dir: str | Path | None = None) -> "TimitTask":
        with open_corpus(self._locate(data_dir)) as utterances:
            return TimitTask(self, utterances)

    def _locate(self, data_dir: str | Path | None) -> Path:
        if self.corpus:
            return Path(self.corpus).expanduser()
        folder = data_directory(data_dir) / "timit"
        unpacked = folder.is_dir() and any(file.suffix.lower() == ".phn" for file in folder.rglob("*"))
        return folder if unpacked else find(SAMPLE, data_dir)


def split_utterances(utterances: list[Utterance]) -> dict[Split, list[Utterance]]:
    """The utterances without the SA sentences, in three splits that share no speaker.

    - The full corpus: its test part (1344 utterances); 23 of its training speakers (184) for validation, the
      rest (3512) for training.
    - Another corpus with the parts train and test: its test part; an eighth of the training speakers for
    validation.
    - A corpus without parts, such as the sample: a quarter of the speakers for testing, an eighth for
      validation.

    Speakers are chosen alternately among women and men (by the f or m that begins their names), in the order
    of the sha256 of their names: as good as at random, and the same on every machine.
    """
    spoken = [utterance for utterance in utterances if not utterance.sentence.startswith("sa")]
    parts = Counter(utterance.part for utterance in spoken)
    official = bool(parts["train"] and parts["test"])
    test = {utterance.speaker for utterance in spoken if official and utterance.part == "test"}
    others = _shuffled({utterance.speaker for utterance in spoken} - test)
    if not official:
        count = -(-len(others) // 4)
        test, others = set(others[:count]), others[count:]
    full = (parts["train"], parts["test"]) == (FULL_TRAIN, FULL_TEST)
    held_out = FULL_VALID_SPEAKERS if full else -(-(len(others) + (0 if official else len(test))) // 8)
    valid = set(others[:held_out])
    splits: dict[Split, list[Utterance]] = {"train": [], "valid": [], "test": []}
    for utterance in spoken:
        in_test, in_valid = utterance.speaker in test, utterance.speaker in valid
        splits["test" if in_test else "valid" if in_valid else "train"].append(utterance)
    for split, members in splits.items():
        if not members:
            raise DataError(
                f"corpus: no utterance is left for {split} out of {len(spoken)} (SA sentences not counted) "
                f"by {len(test) + len(others)} speakers; expected at least 3 speakers"
            )
    return splits


def _shuffled(speakers: set[str]) -> list[str]:
    order = sorted(speakers, key=lambda speaker: hashlib.sha256(speaker.encode()).digest())
    women = [speaker for speaker in order if speaker.startswith("f")]
    men = [speaker for speaker in order if not speaker.startswith("f")]
    return [speaker for speaker in chain.from_iterable(zip_longest(women, men)) if speaker is not None]


class TimitTask(SequenceTask):
    """Inputs (T, B, 26), features normalised to mean 0 and deviation 1 over all frames of the training split.

    The target of a frame is the phone at the middle of its window. When folded, frames of the glottal stop q
    stay in the input but are not counted.
    """

    input_size = mfcc.FEATURES
    measure = Measure("frame accuracy", lower_is_better=False)

    def __init__(self, problem: Timit, utterances: list[Utterance]) -> None:
        self.problem = problem
        self.phones = FOLDED_PHONES if problem.folded else PHONES
        self.output_size = len(self.phones)
        self.utterances = split_utterances(utterances)
        numbers = {phone: self.phones.index(phone) for phone in self.phones}
        self._number = {
            phone: numbers.get((fold(phone) or "") if problem.folded else phone, IGNORED) for phone in PHONES
        }
        self._features: dict[Split, list[NDArray[np.float32]]] = {}
        self._targets: dict[Split, list[NDArray[np.int64]]] = {}
        for split, members in self.utterances.items():
            pairs = [self._frames(utterance) for utterance in members]
            self._features[split] = [features for features, _ in pairs]
            self._targets[split] = [targets for _, targets in pairs]
        self._normalise()
        train, test = (np.concatenate(self._targets[split]) for split in ("train", "test"))
        commonest = np.bincount(train[train != IGNORED]).argmax()
        self.baseline = 100.0 * float((test[test != IGNORED] == commonest).mean())

    def _frames(self, utterance: Utterance) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        samples = utterance.samples()
        frames = mfcc.STATIC.frame_count(len(samples))
        if frames == 0:
            raise DataError(
                f"{utterance.where}.wav: expected at least 25 ms of sound, got {len(samples)} samples"
            )
        phones = phones_at(utterance.segments(), mfcc.frame_centres(frames))
        return mfcc.features(samples).astype(np.float32), np.array([self._number[phone] for phone in phones])

    def _normalise(self) -> None:
        train = np.concatenate(self._features["train"]).astype(np.float64)
        mean, deviation = train.mean(axis=0), train.std(axis=0).clip(1e-8)
        for split, members in self._features.items():
            self._features[split] = [((frames - mean) / deviation).astype(np.float32) for frames in members]

    def size(self, split: Split) -> int:
        return len(self._features[split])

    def _eval_order(self, split: Split) -> NDArray[np.int64]:
        return by_length(self._features[split])

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        features = [self._features[split][index] for index in indices]
        targets = [self._targets[split][index] for index in indices]
        return Batch(
            pad(features, 0.0, torch.float32), pad(targets, IGNORED, torch.int64), lengths_of(features)
        )

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        return accuracy_score(outputs, batch.targets)
