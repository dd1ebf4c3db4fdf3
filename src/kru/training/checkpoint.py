"""Checkpoints: one safetensors file with all tensors, and JSON in its header for the rest.

Nothing in such a file can run code when it is loaded.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from kru.nn.states import State
from kru.training.checksum import checksum
from kru.training.files import write_atomically
from kru.training.plain_json import NUMBER, mismatches, parse_json

FORMAT = "kru 2"
"""Files of this format have a checksum."""
WITHOUT_CHECKSUM = "kru 1"
"""What earlier versions wrote. No single bit makes one format of the other."""


@dataclass
class Progress:
    """Where a run stands, without its tensors.

    Attributes:
        step, epoch, index: steps taken; the pass and the batch in it that come next.
        seconds: time spent so far, over all sittings.
        validated: the step of the last validation, -1 before the first.
        best, best_step: the best validation measure, and when that was.
        stale, since_decay: validations since the best one, and since the rates last changed or it.
        rate: what the schedule multiplied the learning rates by.
        growth_best, growth_stale: the last measure that was an improvement for the schedule of growth, and
            validations since it or since the last step of growth.
        loss_sum, loss_count: losses that are not yet in metrics.jsonl.
        metrics_bytes: the length of metrics.jsonl that belongs to this state.
        stopped: "budget", "early" or "diverged" when training is over.
    """

    step: int = 0
    epoch: int = 0
    index: int = 0
    seconds: float = 0.0
    validated: int = -1
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    since_decay: int = 0
    rate: float = 1.0
    growth_best: float | None = None
    growth_stale: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    metrics_bytes: int = 0
    stopped: str = ""


@dataclass
class Checkpoint:
    """The state of a run: everything needed to resume it exactly."""

    origin: dict[str, Any]
    """what is trained, as JSON values, which only the caller interprets"""
    progress: Progress
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]
    carried: State | None = None
    generator: Tensor = field(default_factory=torch.get_rng_state)
    data: dict[str, float] = field(default_factory=dict)
    """the sizes of the splits and the baseline, to recognise other data; empty in older files"""
    model: dict[str, Any] = field(default_factory=dict)
    """the settings of the model that has `weights`, as it is now; empty in older files"""
    best_model: dict[str, Any] = field(default_factory=dict)
    """the settings of the model that has `best_weights`"""
    average: dict[str, Tensor] = field(default_factory=dict)
    """the running average of the weights, if there is one"""

    def save(self, path: Path) -> None:
        tensors = {f"weights/{name}": tensor for name, tensor in self.weights.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best_weights.items()}
        tensors |= {f"average/{name}": tensor for name, tensor in self.average.items()}
        for index, values in self.optimizer.items():
            tensors |= {f"optimizer/{index}/{name}": tensor for name, tensor in values.items()}
        if self.carried is not None:
            several = isinstance(self.carried, tuple)
            states = self.carried if isinstance(self.carried, tuple) else (self.carried,)
            tensors |= {f"carried/{i if several else 'h'}": state for i, state in enumerate(states)}
        tensors["generator"] = self.generator
        write_tensors(
            path,
            tensors,
            {
                "origin": self.origin,
                "model": self.model,
                "best_model": self.best_model,
                "progress": asdict(self.progress),
                "data": self.data,
            },
        )

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        header, tensors = read_tensors(path)
        # An older version wrote a recipe, its name and its source beside the progress.
        origin = header.get("origin", {key: header.get(key) for key in ("recipe", "name", "source")})
        model, best_model = header.get("model", {}), header.get("best_model", {})
        progress = header.get("progress")
        moments = {name: name.partition("/") for name in _below(tensors, "optimizer")}
        if (
            not isinstance(progress, dict)
            or not _is_progress(progress)
            or not all(isinstance(table, dict) for table in (origin, model, best_model))
            or not _is_numbers(header.get("data", {}))
            or "generator" not in tensors
            or not all(index.isdecimal() for index, _, _ in moments.values())
        ):
            raise ValueError(f"{path}: expected the checkpoint of a run, got another file")
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, (index, _, key) in moments.items():
            optimizer.setdefault(int(index), {})[key] = tensors[f"optimizer/{name}"]
        carried = _below(tensors, "carried")
        several = tuple(carried[str(i)] for i in range(len(carried)) if str(i) in carried)
        return cls(
            origin,
            Progress(**progress),
            _below(tensors, "weights"),
            _below(tensors, "best"),
            optimizer,
            several or carried.get("h"),
            tensors["generator"],
            header.get("data", {}),
            model,
            best_model,
            _below(tensors, "average"),
        )


def _is_numbers(values: Any) -> bool:
    return isinstance(values, dict) and all(isinstance(value, NUMBER) for value in values.values())


def _is_progress(values: Mapping[str, Any]) -> bool:
    """Whether a `Progress` can be made of this; an older version's has fewer entries, the others are as at first."""
    kinds = get_type_hints(Progress)
    if not {"step"} <= set(values) <= set(kinds):
        return False
    # A whole number is a float too.
    return not mismatches(
        values, {key: kinds[key] if kinds[key] is str else kinds[key] | int for key in values}
    )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """A safetensors file with further values, for JSON, in its header, and a checksum of all of it."""
    text = json.dumps(header)
    metadata = {"format": FORMAT, "kru": text, "sha256": checksum(tensors, text)}
    write_atomically(path, save({name: t.contiguous() for name, t in tensors.items()}, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `write_tensors` wrote: header, tensors.

    A file takes as much memory as it has bytes: safetensors has no compression, and compares the sizes in its header
    with the file's before anything is allocated.

    Raises:
        ValueError: it is another file, or its contents don't have the checksum that is in it. Files of earlier
            versions have none.
    """
    if not path.is_file():
        if path.exists():
            raise ValueError(f"{path}: expected a file, got a folder, a device or a pipe")
        raise ValueError(f"{path}: no such file")
    try:
        # Read at once: a run may replace the file at any moment, and then all of this is of one version.
        content = path.read_bytes()
        tensors = load(content)
    except OSError as error:
        raise ValueError(f"{path}: expected a file to read ({error.strerror or error})") from error
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a whole safetensors file ({error})") from error
    except KeyError as error:
        raise ValueError(f"{path}: expected tensors of types that torch has, got {error}") from error
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    if metadata.get("format") not in (FORMAT, WITHOUT_CHECKSUM):
        raise ValueError(f"{path}: expected a file that kru wrote, got format {metadata.get('format')!r}")
    text = metadata.get("kru", "")
    if metadata["format"] == FORMAT and metadata.get("sha256") != checksum(tensors, text):
        raise ValueError(
            f"{path}: expected contents with the SHA-256 in its header, got others: the file was damaged or changed"
        )
    try:
        header = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON in its header ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"{path}: expected a table in its header, got {header!r}")
    return header, tensors


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
