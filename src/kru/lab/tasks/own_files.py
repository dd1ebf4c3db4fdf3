"""Recipes for files of one's own: sequences with a label or a number each, and texts."""

import hashlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from kru.nn.model import Sizes
from kru.training.task import Task


@dataclass(frozen=True)
class Found:
    """What the files say, so that weights can be read without them.

    Attributes:
        of: a digest of the settings that the files were read with; empty before.
        inputs, outputs: sizes of the model.
        labels: the classes as text; none where targets are numbers.
        symbols: of a text.
        mean, scale, step: of the training sequences, what the model reads is standardised by.
        target_mean, target_scale: of targets that are numbers.
        rate: of sounds with features, samples in a second.
    """

    of: str = ""
    inputs: int = 1
    outputs: int = 1
    labels: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    step: tuple[float, ...] = ()
    target_mean: float = 0.0
    target_scale: float = 1.0
    rate: int = 0


@dataclass(frozen=True)
class Sequences:
    """Sequences in a file or folder of your own, each with a label or a number."""

    data: str = ""
    """CSV, Parquet, .npz or .ts file, or folder of WAV files, as `kru fit` takes them"""
    test: str = ""
    """data to test on; by default a fifth of the cases"""
    target: str = ""
    """column or array to predict"""
    case: str = ""
    """column with the name of the case"""
    time: str = ""
    """column with the time"""
    channels: tuple[str, ...] = ()
    """columns to read; all others by default"""
    label_pattern: str = ""
    """WAV files: regular expression whose group finds the label in the name of a file"""
    features: Literal["mfcc", "log-mel", "raw"] = "raw"
    """WAV files: what the model reads of the samples"""
    targets: Literal["auto", "labels", "numbers"] = "auto"
    """what the targets are; by default the data tells"""
    differences: bool = True
    """whether the model also reads the change since the step before"""
    found: Annotated[Found, tyro.conf.Suppress] = field(default_factory=Found)

    def __post_init__(self) -> None:
        if self.data and self.found.of != settings_digest(self):
            from kru.lab.tasks.own_arrays import find_sequences

            object.__setattr__(self, "found", find_sequences(self))

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.found.inputs, self.found.outputs, last_only=True)

    @property
    def label(self) -> str:
        return f"{Path(self.data).stem}, {self.target or 'labels'}"

    def load(self, data_dir: str | Path | None = None) -> Task:
        _expect_data(self.data, "sequences")
        from kru.lab.tasks.own_arrays import load_sequences

        return load_sequences(self)

    def around(self) -> dict[str, Any]:
        """What an exported program has around the model: see `kru.export.Exportable`."""
        from kru.lab.tasks.own_arrays import sound_of

        found = self.found
        scale = [float(value) for value in found.scale]
        around: dict[str, Any] = {"scaling": (list(found.mean), scale), "sound": sound_of(self, found.rate)}
        if found.step:
            around["differences"] = [s * step for s, step in zip(scale, found.step, strict=True)]
        if found.labels:
            one, *others = found.labels
            around |= {"labels": [one, *others] if others else [one, one], "probabilities": bool(others)}
        else:
            around["target_scaling"] = ([found.target_mean], [found.target_scale])
        return around


@dataclass(frozen=True)
class Text:
    """A text of your own; each character is predicted from those before it."""

    data: str = ""
    """text file in UTF-8; with bytes, any file"""
    unit: Literal["characters", "bytes"] = "characters"
    """what is predicted"""
    window: int = 64
    """steps through which a gradient flows; the state is carried on"""
    held_out: float = 0.05
    """part of the text for validation, and as much again for testing"""
    found: Annotated[Found, tyro.conf.Suppress] = field(default_factory=Found)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"task.window: expected at least 1, got {self.window}")
        if not 0 < self.held_out < 0.4:
            raise ValueError(f"task.held-out: expected above 0 and below 0.4, got {self.held_out}")
        if self.data and self.found.of != settings_digest(self):
            from kru.lab.tasks.own_arrays import find_text

            object.__setattr__(self, "found", find_text(self))

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.found.inputs, self.found.outputs, last_only=False, symbols=True)

    @property
    def label(self) -> str:
        return f"{Path(self.data).stem}, {self.unit}"

    def load(self, data_dir: str | Path | None = None) -> Task:
        _expect_data(self.data, "text")
        from kru.lab.tasks.own_arrays import load_text

        return load_text(self)

    def around(self) -> dict[str, Any]:
        """What an exported program has around the model: see `kru.export.Exportable`."""
        symbols = self.found.symbols
        return {"vocabulary": [int(s) for s in symbols] if self.unit == "bytes" else list(symbols)}


def settings_digest(task: Sequences | Text) -> str:
    """A digest of all settings but what was found with them."""
    plain = {entry.name: getattr(task, entry.name) for entry in fields(task) if entry.name != "found"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _expect_data(path: str, name: str) -> None:
    if not path:
        raise ValueError(
            f'task.data: expected a file or a folder, got none; [task] name = "{name}", data = "FILE"'
        )
