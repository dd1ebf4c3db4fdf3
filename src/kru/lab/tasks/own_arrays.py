"""The data of `kru.lab.tasks.own_files`, read as the estimators read it; needs the extra `estimators`."""

import math
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kru.estimators.columns import Columns
from kru.estimators.data import Cases, case_arrays, join, stack
from kru.estimators.files import read_text
from kru.estimators.scaling import Scaling
from kru.estimators.sources import expect_sounds, guess_kind, read_labelled
from kru.estimators.task import Classification, Regression
from kru.estimators.text import TextTask, hold_out
from kru.estimators.vocabulary import Vocabulary
from kru.lab.data import DataError
from kru.lab.tasks.own_files import Found, Sequences, Text, settings_digest
from kru.sound import SoundFeatures
from kru.training.task import Batch, Measure, Score, Split, accuracy_score

TEST, VALID = 0.2, 0.1
"""Parts of the cases: to test on where there is no file for it, and of the others to validate on."""


class OwnLabels(Classification):
    """Sequences with a label each; the measure is the accuracy."""

    measure: ClassVar[Measure] = Measure("accuracy", lower_is_better=False)  # type: ignore[misc]

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        return accuracy_score(outputs, batch.targets)


class OwnNumbers(Regression):
    """Sequences with a number each; the measure is the mean square error in units of the targets' variance."""

    measure: ClassVar[Measure] = Measure("mean square error / variance", lower_is_better=True)  # type: ignore[misc]


class OwnText(TextTask):
    """A text, the last part of which is for testing."""

    measure: ClassVar[Measure] = Measure("bits per character", lower_is_better=True)  # type: ignore[misc]


def find_sequences(task: Sequences) -> Found:
    """What the files of a task say."""
    cases, targets, splits, rate, labels = _read(task)
    training = splits["train"]
    scaling = Scaling.fit(
        Cases(cases.values[:, training], cases.lengths[training]), differences=task.differences
    )
    found = Found(
        settings_digest(task),
        scaling.size,
        len(labels) or 1,
        labels,
        mean=tuple(scaling.mean.tolist()),
        scale=tuple(scaling.scale.tolist()),
        step=() if scaling.step is None else tuple(scaling.step.tolist()),
        rate=rate,
    )
    if labels:
        return found
    of_targets = Scaling.of(targets[training])
    return replace(found, target_mean=float(of_targets.mean[0]), target_scale=float(of_targets.scale[0]))


def load_sequences(task: Sequences) -> OwnLabels | OwnNumbers:
    """The task with its data."""
    cases, targets, splits, rate, labels = _read(task)
    found = task.found
    if (labels, rate) != (found.labels, found.rate):
        raise DataError(
            f"{task.data}: expected the labels {', '.join(found.labels) or 'none'}, got {', '.join(labels) or 'none'}"
        )
    step = np.array(found.step) if found.step else None
    scaling = Scaling(np.array(found.mean), np.array(found.scale), step)
    if len(scaling.mean) != cases.channels:
        raise DataError(f"{task.data}: expected {len(scaling.mean)} channels, got {cases.channels}")
    kind: Any = OwnLabels if labels else OwnNumbers
    if not labels:
        targets = ((targets - found.target_mean) / found.target_scale).astype(np.float32)
    held_out = np.concatenate([splits["valid"], splits["test"]])
    made: OwnLabels | OwnNumbers = kind(
        scaling.transform(cases),
        cases.lengths,
        targets,
        weights=None,
        held_out=held_out,
        input_size=found.inputs,
        output_size=found.outputs,
    )
    made.set_splits(splits)
    tested = targets[splits["test"]]
    if labels:
        usual = np.bincount(targets[splits["train"]]).argmax()
        made.baseline = float(100 * (tested == usual).mean())
    else:
        made.baseline = float((tested**2).mean())
    return made


def sound_of(task: Sequences, rate: int) -> SoundFeatures | None:
    """The features that the model reads of sounds."""
    return SoundFeatures.of(rate, task.features) if rate and task.features != "raw" else None


def find_text(task: Text) -> Found:
    """The symbols of a text."""
    symbols = Vocabulary.of(_symbols(task)).symbols
    size = len(symbols) + 1
    return Found(settings_digest(task), size, size, symbols=tuple(map(str, symbols)))


def load_text(task: Text) -> OwnText:
    """The task with its text: the end of it is for testing, pieces of the rest for validation."""
    text = _symbols(task)
    known: list[Hashable] = [int(s) if task.unit == "bytes" else s for s in task.found.symbols]
    codes = Vocabulary(tuple(known)).encode(text)
    count = int(task.held_out * len(codes))
    if count < 8 or len(codes) < 100:
        raise DataError(
            f"{task.data}: expected at least {math.ceil(8 / task.held_out)} symbols, got {len(codes)}"
        )
    training, valid = hold_out(codes[:-count], task.held_out)
    made = OwnText(training, valid, size=task.found.inputs, start=task.found.inputs - 1, window=task.window)
    made.set_test(codes[-count:])
    counts = np.bincount(training, minlength=task.found.inputs) + 0.5
    made.baseline = float(-np.log2(counts / counts.sum())[codes[-count:]].mean())
    return made


def _symbols(task: Text) -> list[Hashable]:
    path = Path(task.data).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: expected a file, got nothing there")
    if task.unit == "bytes":
        return list(path.read_bytes())
    try:
        return list(read_text(path))
    except ValueError as error:
        raise DataError(str(error).replace('symbols="bytes"', 'unit = "bytes"')) from error


Read = tuple[Cases, NDArray[Any], dict[Split, NDArray[np.int64]], int, tuple[str, ...]]


def _read(task: Sequences) -> Read:
    paths = [Path(path).expanduser() for path in (task.data, task.test) if path]
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: expected a file or a folder, got nothing there")
    stamps = tuple(path.stat().st_mtime_ns for path in paths)
    return _read_once(replace_found(task), stamps)


def replace_found(task: Sequences) -> Sequences:
    """The settings without what was found with them, as a key."""
    key = object.__new__(Sequences)
    for name, value in vars(task).items():
        object.__setattr__(key, name, Found() if name == "found" else value)
    return key


@lru_cache(maxsize=4)
def _read_once(task: Sequences, stamps: tuple[int, ...]) -> Read:
    columns = Columns(
        task.target or None,
        task.case or None,
        task.time or None,
        task.channels,
        label_pattern=task.label_pattern or None,
    )
    path = Path(task.data).expanduser()
    try:
        numbers = task.targets == "numbers" or (
            task.targets == "auto" and guess_kind(path, columns).kind == "regressor"
        )
        cases, y, rate = _cases(task, path, columns, numbers)
        test = None if not task.test else _cases(task, Path(task.test).expanduser(), columns, numbers)
    except ValueError as error:
        raise DataError(str(error)) from error
    count = len(y)
    if test is not None:
        if test[0].channels != cases.channels or test[2] != rate:
            raise DataError(
                f"{task.test}: expected {cases.channels} channels as in {path}, got {test[0].channels}"
            )
        cases, y = join(cases, test[0]), np.concatenate([y, test[1]])
    labels: tuple[str, ...] = ()
    targets: NDArray[Any] = y.astype(np.float64)[:, None] if numbers else y
    if not numbers:
        classes, targets = np.unique(y[:count], return_inverse=True)
        labels = tuple(map(str, classes.tolist()))
        known = {label: index for index, label in enumerate(classes.tolist())}
        unknown = [label for label in y[count:].tolist() if label not in known]
        if unknown:
            raise DataError(
                f"{task.test}: expected one of the labels {', '.join(labels)}, got {unknown[0]!r}"
            )
        targets = np.array([known[label] for label in y.tolist()], dtype=np.int64)
    order = np.random.RandomState(0).permutation(count)
    if not numbers:
        order = order[np.argsort(targets[order], kind="stable")]
    tested, rest = (np.arange(count, len(y)), order) if test is not None else _split(order, TEST)
    valid, training = _split(rest, VALID)
    if min(len(tested), len(training)) == 0:
        raise DataError(f"{path}: expected at least 10 cases, got {count}")
    return cases, targets, {"train": training, "valid": valid, "test": tested}, rate, labels


def _split(order: NDArray[np.int64], part: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A part of some cases, evenly over them, and the others."""
    count = max(1, round(part * len(order)))
    places = np.linspace(0, len(order) - 1, count).round().astype(int)
    return np.sort(order[places]), np.sort(np.delete(order, places))


def _cases(task: Sequences, path: Path, columns: Columns, numbers: bool) -> tuple[Cases, NDArray[Any], int]:
    data, _ = read_labelled(path, columns, missing="error", numbers=numbers)
    assert data.y is not None
    features = sound_of(task, data.rate or 0)
    expect_sounds(path, data, features)
    names, arrays = case_arrays(data.X)
    if features is not None:
        arrays = [features.of_channels(array) for array in arrays]
    return stack(arrays, names), data.y, data.rate or 0
