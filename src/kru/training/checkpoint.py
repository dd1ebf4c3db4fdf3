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

from kru.lab.recipes.files import recipe_from, recipe_mapping
from kru.lab.recipes.settings import Recipe
from kru.nn.states import State
from kru.training.files import write_atomically
from kru.training.plain_json import NUMBER, mismatches, parse_json

FORMAT = "kru 1"


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
    """A run at one moment: enough to go on as if nothing had happened."""

    recipe: Recipe
    source: str
    """the recipe's name or path, as it was given"""
    progress: Progress
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]
    carried: State | None = None
    generator: Tensor = field(default_factory=torch.get_rng_state)
    data: dict[str, float] = field(default_factory=dict)
    """the sizes of the splits and the baseline, by which other data are told; none in an older file"""

    def save(self, path: Path) -> None:
        tensors = {f"weights/{name}": tensor for name, tensor in self.weights.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best_weights.items()}
        for index, values in self.optimizer.items():
            tensors |= {f"optimizer/{index}/{name}": tensor for name, tensor in values.items()}
        if self.carried is not None:
            several = isinstance(self.carried, tuple)
            states = self.carried if isinstance(self.carried, tuple) else (self.carried,)
            tensors |= {f"carried/{i if several else 'h'}": state for i, state in enumerate(states)}
        tensors["generator"] = self.generator
        write_tensors(
            path, tensors, self.recipe, source=self.source, progress=asdict(self.progress), data=self.data
        )

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        recipe, header, tensors = read_tensors(path)
        progress = header.get("progress")
        moments = {name: name.partition("/") for name in _below(tensors, "optimizer")}
        if (
            not isinstance(progress, dict)
            or not _is_progress(progress)
            or not isinstance(header.get("source"), str)
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
            recipe,
            header["source"],
            Progress(**progress),
            _below(tensors, "weights"),
            _below(tensors, "best"),
            optimizer,
            several or carried.get("h"),
            tensors["generator"],
            header.get("data", {}),
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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], recipe: Recipe, **header: Any) -> None:
    """A safetensors file with the recipe and further JSON values in its header."""
    contents = {"recipe": recipe_mapping(recipe), "name": recipe.name, **header}
    metadata = {"format": FORMAT, "kru": json.dumps(contents)}
    write_atomically(path, save({name: t.contiguous() for name, t in tensors.items()}, metadata))


def read_tensors(path: Path) -> tuple[Recipe, dict[str, Any], dict[str, Tensor]]:
    """What `write_tensors` wrote: recipe, header, tensors."""
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
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a file that kru wrote, got format {metadata.get('format')!r}")
    try:
        header = parse_json(metadata.get("kru", ""))
        recipe = _recipe_in(header)
    except ValueError as error:
        raise ValueError(f"{path}: expected a recipe in its header ({error})") from error
    return recipe, header, tensors


def _recipe_in(header: Any) -> Recipe:
    entries = header if isinstance(header, dict) else {}
    recipe, name = entries.get("recipe"), entries.get("name")
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe: expected a table, got {recipe!r}")
    # Commands print the name, and call folders after it.
    if not isinstance(name, str) or Path(name).name != name or name == ".." or not name.isprintable():
        raise ValueError(f"name: expected one that a folder can have, got {name!r}")
    return recipe_from(recipe, name, recorded=True)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
