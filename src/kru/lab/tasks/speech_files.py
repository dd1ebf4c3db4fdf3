"""The utterances of a corpus in TIMIT's layout, in a directory or in a zip archive, which is read in place.

A recording lies at ``.../<speaker>/<sentence>.wav`` with its labels beside it in ``<sentence>.phn``; the
speaker's folder is ``fcjf0`` inside a folder ``dr1`` or, as in the NLTK sample, ``dr1-fcjf0``. A folder
``train`` or ``test`` above says to which part of the corpus the speaker belongs. Case does not matter.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from kru.lab.data import DataError
from kru.lab.data.archive import open_archive, read_member
from kru.lab.tasks.audio import RECORDING_LIMIT, read_samples
from kru.lab.tasks.phones import PHONES

Reader = Callable[[], bytes]

LABELS_LIMIT = 2**18
"""How many bytes a file of labels may have; the longest of TIMIT's sample has 1,016."""


@dataclass(frozen=True)
class Segment:
    """A phone from sample `begin` up to `end`."""

    begin: int
    end: int
    phone: str


@dataclass(frozen=True)
class Utterance:
    """One recording, not read yet; `part` is "train", "test" or "" where the corpus does not say."""

    part: str
    speaker: str
    sentence: str
    where: str
    read_recording: Reader
    read_labels: Reader

    def samples(self) -> NDArray[np.int16]:
        return read_samples(self.read_recording(), f"{self.where}.wav")

    def segments(self) -> list[Segment]:
        return parse_labels(self.read_labels(), f"{self.where}.phn")


@contextmanager
def open_corpus(corpus: Path) -> Iterator[list[Utterance]]:
    """All utterances of a corpus, ordered by part, speaker and sentence, to be read inside the context."""
    if corpus.is_dir():
        files = [file for file in corpus.rglob("*") if _belongs(file.name) and file.is_file()]
        yield _utterances(
            corpus, {file.relative_to(corpus).as_posix(): partial(_read_file, file) for file in files}
        )
        return
    if not corpus.exists():
        raise DataError(f"{corpus}: missing; expected the directory or zip of a corpus in TIMIT's layout")
    with open_archive(corpus) as archive:
        members = [name for name in archive.namelist() if _belongs(name)]
        yield _utterances(
            corpus, {name: partial(read_member, archive, name, _limit(name)) for name in members}
        )


def _limit(name: str) -> int:
    return RECORDING_LIMIT if name.lower().endswith(".wav") else LABELS_LIMIT


def _read_file(file: Path) -> bytes:
    size, limit = file.stat().st_size, _limit(file.name)
    if size > limit:
        raise DataError(f"{file}: expected at most {limit:,} bytes, got {size:,}")
    return file.read_bytes()


def _belongs(name: str) -> bool:
    """Recordings and labels, but no hidden file, such as the ._sa1.wav that a Mac leaves beside sa1.wav."""
    return name.lower().endswith((".wav", ".phn")) and not name.rpartition("/")[2].startswith(".")


def _utterances(corpus: Path, files: dict[str, Reader]) -> list[Utterance]:
    """The utterances out of the path of each file inside the corpus and how to read it."""
    readers = {name.lower(): read for name, read in files.items()}
    recordings: dict[str, str] = {}
    for name in sorted(readers, key=lambda name: (-len(name), name)):
        # Some copies hold sa1.wav and sa1.wav.wav, the same in two formats: the shorter name, met last, wins.
        if name.endswith(".wav"):
            recordings[_stem(name)] = name
    labels = {_stem(name): name for name in readers if name.endswith(".phn")}
    if not recordings:
        raise DataError(
            f"{corpus}: expected recordings <speaker>/<sentence>.wav with labels .phn beside them, found "
            "no .wav; name the directory or zip of a corpus in TIMIT's layout"
        )
    utterances = []
    for stem, recording in recordings.items():
        if stem not in labels:
            raise DataError(
                f"{corpus}: {recording} has no labels {stem}.phn beside it; restore them or remove it"
            )
        *folders, sentence = PurePosixPath(stem).parts
        if not folders:
            raise DataError(f"{corpus}: expected {recording} in a folder named after its speaker")
        part = next((folder for folder in reversed(folders) if folder in ("train", "test")), "")
        speaker = folders[-1].rpartition("-")[2]
        reading = readers[recording], readers[labels[stem]]
        utterances.append(Utterance(part, speaker, sentence, f"{corpus}: {stem}", *reading))
    return sorted(utterances, key=lambda utterance: (utterance.part, utterance.speaker, utterance.sentence))


def _stem(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file.partition('.')[0]}".lstrip("/")


def parse_labels(data: bytes, where: str) -> list[Segment]:
    """The segments of a .phn file: lines ``begin end phone``, in order of time."""
    segments: list[Segment] = []
    for number, line in enumerate(data.decode("ascii", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 3 or not (words[0].isdecimal() and words[1].isdecimal()):
            raise DataError(f"{where}, line {number}: expected `begin end phone`, got {line!r}")
        segment = Segment(int(words[0]), int(words[1]), words[2].lower())
        if segment.phone not in PHONES:
            raise DataError(f"{where}, line {number}: expected one of TIMIT's 61 phones, got {words[2]!r}")
        if segment.begin > segment.end or (segments and segment.begin < segments[-1].begin):
            raise DataError(f"{where}, line {number}: expected segments in order of time, got {line!r}")
        segments.append(segment)
    if not segments:
        raise DataError(f"{where}: expected lines `begin end phone`, got none")
    return segments


def phones_at(segments: list[Segment], positions: NDArray[np.int64]) -> list[str]:
    """The phone at each sample position: that of the last segment which begins there or before."""
    begins = [segment.begin for segment in segments]
    return [segments[max(0, bisect_right(begins, position) - 1)].phone for position in positions.tolist()]
