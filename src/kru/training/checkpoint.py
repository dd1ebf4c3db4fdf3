"""Checkpoints: one safetensors file with all tensors, and JSON in its header for the rest.

Nothing in such a file can run code when it is loaded.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from kru.nn.states import State
from kru.training.config import Recipe
from kru.training.files import write_atomically
from kru.training.recipes import recipe_from, recipe_mapping

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
        write_tensors(path, tensors, self.recipe, source=self.source, progress=asdict(self.progress))

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        recipe, header, tensors = read_tensors(path)
        known = {entry.name for entry in fields(Progress)}
        progress = header.get("progress")
        # A file of an older version has fewer entries; the others are then as at the beginning.
        if (
            not isinstance(progress, dict)
            or not {"step"} <= set(progress) <= known
            or not isinstance(header.get("source"), str)
            or "generator" not in tensors
        ):
            raise ValueError(f"{path}: expected the checkpoint of a run, got another file")
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below(tensors, "optimizer").items():
            index, _, key = name.partition("/")
            optimizer.setdefault(int(index), {})[key] = tensor
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
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], recipe: Recipe, **header: Any) -> None:
    """A safetensors file with the recipe and further JSON values in its header."""
    contents = {"recipe": recipe_mapping(recipe), "name": recipe.name, **header}
    metadata = {"format": FORMAT, "kru": json.dumps(contents)}
    write_atomically(path, save({name: t.contiguous() for name, t in tensors.items()}, metadata))


def read_tensors(path: Path) -> tuple[Recipe, dict[str, Any], dict[str, Tensor]]:
    """What `write_tensors` wrote: recipe, header, tensors."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: the file's own tensors would lie in memory that the next checkpoint replaces.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: expected a whole safetensors file ({error})") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a file that kru wrote, got format {metadata.get('format')!r}")
    try:
        header = json.loads(metadata["kru"])
        recipe = recipe_from(header["recipe"], header["name"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a recipe in its header ({error})") from error
    return recipe, header, tensors


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
