"""Mutated files of every kind that kru reads."""

import contextlib
import hashlib
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kru.estimators import load
from kru.estimators.columns import Columns
from kru.estimators.files import read_text
from kru.estimators.series_files import read_series_file
from kru.estimators.sources import guess_kind, read_labelled, read_unlabelled
from kru.lab.data import DataError
from kru.lab.recipes.files import load_recipe
from kru.lab.result import commit, read_result, read_weights
from kru.lab.sweep.space import load_space
from kru.lab.tasks.audio import read_samples
from kru.lab.tasks.idx import read_idx
from kru.lab.tasks.music import read_rolls
from kru.lab.tasks.penn_treebank import read_characters
from kru.lab.tasks.speech_files import open_corpus, parse_labels
from kru.lab.trainer import load_checkpoint
from kru.reservoir.echo_state import EchoState
from kru.sound import read_wav
from kru.training.metrics import read_metrics

from .command import HarmError, command, expect_line, forbid_harm
from .mutate import (
    mutate_bytes,
    mutate_estimator,
    mutate_json,
    mutate_packed,
    mutate_parquet,
    mutate_text,
    mutate_torch_file,
    mutate_zip,
)
from .pool import Case, FoundError

Mutate = Callable[[Random, bytes, list[bytes]], bytes]
Read = Callable[[Path, Random], Any]


@dataclass(frozen=True)
class Kind:
    """Files of one kind.

    Attributes:
        files: valid ones, in the corpus.
        read: the function that reads one; errors are ValueErrors.
        commands: what else reads one, as arguments of `kru`; FILE stands for it, CORPUS for the other files.
        checksum: whether a change that is not noticed leaves the contents as they were.
    """

    files: tuple[str, ...]
    mutate: Mutate
    read: Read | None
    commands: tuple[tuple[str, ...], ...] = ()
    checksum: bool = False
    heavy: float = field(default=0.05)
    """how often a command reads the file"""


def _weights(path: Path, rng: Random) -> Any:
    return read_weights(path)[1].state_dict()


def _checkpoint(path: Path, rng: Random) -> Any:
    checkpoint = load_checkpoint(path)[1]
    return {**checkpoint.weights, **{f"best {k}": v for k, v in checkpoint.best_weights.items()}}


def _estimator(path: Path, rng: Random) -> Any:
    return load(path).network_.state_dict()


def _echo(path: Path, rng: Random) -> Any:
    model = EchoState.load(str(path))
    X = np.random.default_rng(0).normal(size=(3, model.n_features_in_, 20))
    name = type(model).__name__
    if name == "EchoStateForecaster":
        return model.predict(5)
    return model.predict(X)


def _corpus(path: Path, rng: Random) -> Any:
    with open_corpus(path) as utterances:
        return [(utterance.samples(), utterance.segments()) for utterance in utterances]


def _table(path: Path, rng: Random) -> Any:
    target = rng.choice(["label", "y", "x", None])
    columns = Columns(target=target, channels=rng.choice([(), (), ("x",)]))
    series = Columns(target=rng.choice(["value", "x", None]), exogenous=rng.choice([(), ("z",)]))
    missing = rng.choice(["error", "mask"])
    ways: list[Callable[[], Any]] = [
        lambda: guess_kind(path, columns),
        lambda: read_labelled(path, columns, missing=missing, numbers=rng.random() < 0.5),
        lambda: read_unlabelled(path, columns, missing=missing),
        lambda: read_series_file(path, series),
    ]  # fmt: skip
    return rng.choice(ways)()


def _fit(target: str, *more: str) -> tuple[str, ...]:
    few = ("--steps", "1", "--units", "2", "--quiet")
    return ("fit", "FILE", *(("--target", target) if target else ()), "-o", "made.safetensors", *few, *more)


EXPORT = ("export", "FILE", "--to", "c99", "-o", "made")
PREDICT = ("predict", "CORPUS/classifier.safetensors", "FILE")
SHOW = ("sweep", "CORPUS/small.toml", "--storage", "FILE", "--show", "--out", "made")

KINDS: dict[str, Kind] = {
    "weights": Kind(
        ("run/weights.safetensors", "grown/weights.safetensors"),
        mutate_torch_file,
        _weights,
        (("evaluate", "FILE"), EXPORT, ("evaluate", "FILE", "--split", "valid")),
        checksum=True,
    ),
    "checkpoint": Kind(
        ("run/checkpoint.safetensors", "half/checkpoint.safetensors", "grown/checkpoint.safetensors"),
        mutate_torch_file,
        _checkpoint,
        checksum=True,
    ),
    "run": Kind(
        ("half/checkpoint.safetensors", "half/result.json", "half/metrics.jsonl", "half/weights.safetensors"),
        mutate_bytes,
        None,
    ),
    "result": Kind(("run/result.json",), mutate_json, lambda path, rng: read_result(path)),
    "metrics": Kind(("run/metrics.jsonl",), mutate_json, lambda path, rng: read_metrics(path)),
    "recipe": Kind(("small.toml", "grown.toml"), mutate_text, lambda path, rng: load_recipe(str(path))),
    "space": Kind(
        ("space.toml",), mutate_text, lambda path, rng: load_space(path, load_recipe(str(CORPUS / "small.toml"))).grid()
    ),
    "mat": Kind(("rolls.mat", "packed.mat"), mutate_bytes, lambda path, rng: read_rolls(path)),
    "idx": Kind(("images.gz",), mutate_packed, lambda path, rng: read_idx(path, 3)),
    "zip": Kind(("corpus.zip",), mutate_zip, _corpus),
    "recording": Kind(
        ("riff.wav", "sphere.wav"), mutate_text, lambda path, rng: read_samples(path.read_bytes(), str(path))
    ),
    "phones": Kind(("labels.phn",), mutate_text, lambda path, rng: parse_labels(path.read_bytes(), str(path))),
    "characters": Kind(("some.txt",), mutate_text, lambda path, rng: read_characters(path)),
    "wav": Kind(
        ("plain1.wav", "plain4.wav", "riff.wav", "sounds/a/0.wav", "sounds/a/2.wav"),
        mutate_bytes,
        lambda path, rng: read_wav(path),
        (("predict", "CORPUS/sounds.safetensors", "."),
         ("fit", ".", "-o", "made.safetensors", "--steps", "1", "--units", "2", "--quiet", "--label-pattern", "(f)")),
    ),
    "csv": Kind(
        ("long.csv", "wide.csv", "series.csv"),
        mutate_text,
        _table,
        (_fit("label"), _fit("y"), _fit("", "--as", "forecaster"), ("predict", "CORPUS/classifier.safetensors", "FILE"),
         ("evaluate", "CORPUS/regressor.safetensors", "FILE"), ("predict", "CORPUS/forecaster.safetensors", "FILE")),
    ),
    "parquet": Kind(
        ("long.parquet", "series.parquet"),
        mutate_parquet,
        _table,
        (_fit("label"), _fit("label", "--as", "classifier"), ("predict", "CORPUS/classifier.safetensors", "FILE")),
    ),
    "npz": Kind(
        ("cases.npz", "more.npz"), mutate_zip, _table, (_fit(""), PREDICT)
    ),
    "ts": Kind(
        ("cases.ts", "targets.ts"), mutate_text, _table, (_fit(""), PREDICT)
    ),
    "text": Kind(
        ("some.txt",),
        mutate_text,
        lambda path, rng: read_text(path),
        (_fit(""), _fit("", "--bytes"), ("evaluate", "CORPUS/text.safetensors", "FILE")),
    ),
    "estimator": Kind(
        tuple(f"{name}.safetensors" for name in ("classifier", "regressor", "forecaster", "text", "sounds")),
        mutate_estimator,
        _estimator,
        (("predict", "FILE", "CORPUS/long.csv"), ("predict", "FILE", "CORPUS/series.csv"), ("predict", "FILE"),
         ("predict", "FILE", "CORPUS/sounds"), ("evaluate", "FILE", "CORPUS/some.txt"),
         ("evaluate", "FILE", "CORPUS/long.csv"), EXPORT,
         ("export", "FILE", "--to", "js", "-o", "made"), ("generate", "FILE", "--length", "5"),
         ("fit", "CORPUS/long.csv", "--target", "label", "-o", "FILE", "--warm-start", "--steps", "1", "--quiet")),
        checksum=True,
        heavy=0.2,
    ),
    "echo": Kind(
        tuple(f"echo-{name}.safetensors" for name in ("classifier", "regressor", "forecaster")),
        mutate_torch_file,
        _echo,
        checksum=True,
    ),
    "journal": Kind(
        ("s.journal",), mutate_json, None, (SHOW,)
    ),
    "sqlite": Kind(
        ("s.db",), mutate_bytes, None, (SHOW,)
    ),
}  # fmt: skip
CORPUS = Path()
_WARM: set[tuple[str, ...]] = set()
"""Commands that were run in this process."""


class Files:
    """Mutates a valid file of one kind and has it read."""

    simd = ""

    def __init__(self, name: str, corpus: Path) -> None:
        global CORPUS
        CORPUS = corpus
        self.name, self.kind = name, KINDS[name.removeprefix("file ")]
        self.originals = {file: (corpus / file).read_bytes() for file in self.kind.files}
        self.digests: dict[str, bytes] = {}
        commit()  # which asks git, once
        self._warm_up()

    def _warm_up(self) -> None:
        """Read what is valid, here: each child would spend its life on what is loaded at first use."""
        rng = Random(0)
        for name in self.kind.files:
            for _ in range(1 + 7 * (self.kind.read is _table)):
                with contextlib.suppress(ValueError, DataError):
                    found = None if self.kind.read is None else self.kind.read(CORPUS / name, rng)
            if self.kind.checksum:
                self.digests[name] = _digest(found)
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.suppress(FoundError),
        ):
            for words in self.kind.commands:
                if words[:1] + words[2:4] in _WARM:
                    continue
                _WARM.add(words[:1] + words[2:4])
                shutil.copy(CORPUS / self.kind.files[0], f"file{Path(self.kind.files[0]).suffix}")
                command(*self._words(words, Path(folder) / f"file{Path(self.kind.files[0]).suffix}"))
                shutil.rmtree("made", ignore_errors=True)

    def run(self, case: Case, folder: Path, again: bool) -> str:
        warnings.simplefilter("ignore")
        rng = case.rng()
        name = rng.choice(self.kind.files)
        original = self.originals[name]
        path = folder / f"file{Path(name).suffix}"
        mutated = self.kind.mutate(rng, original, list(self.originals.values()))
        if not again:
            path.write_bytes(mutated)
        choice = Random(case.name)
        try:
            forbid_harm(folder)
            if self.kind.read is None and not self.kind.commands:
                return _resume(folder, Path(name).name, path)
            if self.kind.read is None or (self.kind.commands and choice.random() < self.kind.heavy):
                chosen = choice.choice(self.kind.commands)
                code, _ = command(*self._words(chosen, path))
                return f"kru {chosen[0]}: exit code {code}"
            return self._read(path, choice, name, original)
        except HarmError as error:
            raise FoundError(f"{name}: {error}") from error

    @staticmethod
    def _words(words: tuple[str, ...], path: Path) -> list[str]:
        return [word.replace("FILE", str(path)).replace("CORPUS", str(CORPUS)) for word in words]

    def _read(self, path: Path, rng: Random, name: str, original: bytes) -> str:
        assert self.kind.read is not None
        try:
            found = self.kind.read(path, rng)
        except (ValueError, OverflowError, DataError) as error:
            expect_line(" ".join(str(error).split()))
            return f"refused: {str(error)[:80]}"
        if (
            self.kind.checksum
            and _flipped(path.read_bytes(), original)
            and _digest(found) != self.digests[name]
        ):
            raise FoundError(f"{name}: damage is not noticed")
        return "read"


def _flipped(data: bytes, original: bytes) -> bool:
    """Whether these are other bytes that still have the checksum of the original."""
    return data != original and _sha(original) in data


def _sha(data: bytes) -> bytes:
    """The checksum that a file has in its header."""
    at = data.find(b'"sha256":"')
    return data[at + 10 : at + 74]


def _resume(folder: Path, name: str, path: Path) -> str:
    """Continue a run of which one file is damaged: refused, or the result of an undamaged one."""
    run = folder / "run"
    if not run.exists():
        shutil.copytree(CORPUS / "half", run)
        shutil.copy(path, run / name)
    code, _ = command("train", str(CORPUS / "small.toml"), "--quiet", "--out", str(run), "--steps", "24",
                      "--checkpoint-seconds", "0")  # fmt: skip
    if code == 0:
        whole = read_weights(CORPUS / "run" / "weights.safetensors")[1].state_dict()
        if _digest(read_weights(run / "weights.safetensors")[1].state_dict()) != _digest(whole):
            raise FoundError(f"a run with a damaged {name} ends with other weights")
    return f"{name}: exit code {code}"


def _digest(found: Any) -> bytes:
    digest = hashlib.sha256()
    values = sorted(found.items()) if isinstance(found, dict) else [("", found)]
    for name, value in values:
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.digest()
