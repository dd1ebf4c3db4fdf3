"""The result of a run as a small JSON file, and its weights."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kru
from kru.lab.recipes.files import command_line
from kru.lab.recipes.settings import Recipe
from kru.lab.trainer import RecipeTrainer, recipe_header, recipe_in
from kru.nn.kinds import ModelSettings
from kru.nn.model import SequenceModel, Sizes, build_model
from kru.ops import bindings, gpu
from kru.optim.parameters import parameter_count
from kru.training.checkpoint import read_tensors, write_tensors
from kru.training.evaluate import evaluate
from kru.training.files import write_atomically
from kru.training.fitting import expect_fitting
from kru.training.metrics import is_point, read_metrics, thinned
from kru.training.plain_json import NUMBER, Shape, mismatches, parse_json
from kru.training.task import SPLITS

# What reports read, and of what kind it is.
REQUIRED: dict[str, Shape] = {
    "recipe": str,
    "seed": int,
    "command": str,
    "commit": str,
    "machine": dict.fromkeys(("processor", "cores", "threads", "torch"), object),
    "measure": str,
    "lower_is_better": bool,
    "baseline": NUMBER,
    "valid": NUMBER,
    "test": NUMBER,
    "parameters": {"total": int, "recurrent": int},
    "steps": int,
    "wall_seconds": NUMBER,
    "stopped": str,
    "curve": list,
}


# The measure over the training data is given too where it costs next to nothing.
SMALL = 5_000


def make_result(trainer: RecipeTrainer, metrics: Path, stopped: str) -> dict[str, Any]:
    """The record of a finished run: its best model, measured once on the test split.

    All processes of the run have to call it; the record of the first is the one with the curve.
    """
    recipe, task, progress = trainer.recipe, trainer.task, trainer.progress
    model = trainer.best_model()
    batch_size = recipe.evaluation.batch_size
    figures = {
        split: evaluate(model, task, split, batch_size, processes=trainer.processes)
        if split != "train" or task.size("train") <= SMALL
        else None
        for split in SPLITS
    }
    count = parameter_count(model)
    lines = read_metrics(metrics) if trainer.processes.is_first else []
    grown = [line for line in lines if "grown" in line]
    epochs = progress.epoch + progress.index / len(
        task.train_batches(recipe.batch_size, epoch=progress.epoch, seed=recipe.seed)
    )
    return {
        "recipe": recipe.name,
        "task": recipe.task.label,
        "model": recipe.model.kind,
        "seed": recipe.seed,
        "command": trainer.command or command_line(recipe, trainer.source),
        "commit": commit(),
        "machine": machine(trainer.processes.device),
        "measure": task.measure.name,
        "lower_is_better": task.measure.lower_is_better,
        "baseline": _rounded(task.baseline),
        "sequences": {split: task.size(split) for split in SPLITS},
        **{split: value if value is None else _rounded(value) for split, value in figures.items()},
        "parameters": {"total": count.total, "recurrent": count.recurrent},
        "steps": progress.step,
        "best_step": progress.best_step,
        "epochs": _rounded(epochs),
        "wall_seconds": round(progress.seconds, 1),
        "stopped": stopped,
        **task.details(model, batch_size),
        **({"growth": grown} if recipe.growth.max_parameters else {}),
        "curve": thinned(lines),
    }


def write_result(path: Path, result: dict[str, Any]) -> None:
    """One line for each entry, the curve a line for each point: small, and readable in a diff."""
    parts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items() if key != "curve"]
    points = ",\n".join("    " + json.dumps(point) for point in result["curve"])
    parts.append(f'  "curve": [\n{points}\n  ]')
    write_atomically(path, ("{\n" + ",\n".join(parts) + "\n}\n").encode())


def read_result(path: Path) -> dict[str, Any]:
    """A result that `write_result` wrote."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: expected the result of a run ({error})") from error
    return parse_result(data, path)


def parse_result(data: bytes, path: Path) -> dict[str, Any]:
    """The result that a file's contents are; `path` is for messages."""
    try:
        result = parse_json(data)
    except ValueError as error:
        raise ValueError(f"{path}: expected the result of a run in JSON ({error})") from error
    missing = [key for key in REQUIRED if not isinstance(result, dict) or key not in result]
    if missing:
        raise ValueError(f"{path}: expected the result of a run, got JSON without {', '.join(missing)}")
    wrong = mismatches(result, REQUIRED)
    if "curve" not in wrong and not all(map(is_point, result["curve"])):
        wrong.append("curve")
    if wrong:
        raise ValueError(
            f"{path}: expected the result of a run, got another kind of value for {', '.join(wrong)}"
        )
    return dict(result)


def write_weights(path: Path, weights: dict[str, Tensor], recipe: Recipe) -> None:
    """Weights with the recipe that says what model they belong to; one that grew has its last factors there."""
    write_tensors(path, weights, recipe_header(recipe))


def read_weights(path: Path) -> tuple[Recipe, SequenceModel]:
    """The recipe and the model of a weights file."""
    header, tensors = read_tensors(path)
    recipe = _recipe_of(path, header)
    return recipe, model_in(path, recipe, tensors)


def read_recipe(path: Path) -> Recipe:
    """The recipe of a weights file."""
    return _recipe_of(path, read_tensors(path)[0])


def _recipe_of(path: Path, header: Mapping[str, Any]) -> Recipe:
    try:
        return recipe_in(header)
    except ValueError as error:
        raise ValueError(f"{path}: expected a recipe in its header ({error})") from error


def model_in(path: Path, recipe: Recipe, weights: Mapping[str, Tensor]) -> SequenceModel:
    """The model that a recipe and weights from a file are; `path` is for messages.

    The file decides how large the model is, so shapes are compared before the model is allocated.
    """
    try:
        expect_weights(recipe.name, recipe.model, recipe.task.sizes, weights)
        model = build_model(recipe.model, recipe.task.sizes)
        model.load_state_dict(weights)
        return model
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def expect_weights(name: str, model: ModelSettings, sizes: Sizes, weights: Mapping[str, Tensor]) -> None:
    """Raise a `ValueError` unless the weights are those of the model of the recipe `name`.

    Nothing is allocated that is as large as the model.
    """
    misfit = f"its tensors don't fit the model of {name}"
    # Every layer has tensors of its own, and even without memory for these a layer costs time.
    if model.num_layers > len(weights):
        raise ValueError(
            f"{misfit} (expected those of {model.num_layers} layers, got {len(weights)} tensors)"
        )
    with torch.device("meta"):
        shapes = build_model(model, sizes).state_dict()
    try:
        expect_fitting(weights, shapes)
    except ValueError as error:
        raise ValueError(f"{misfit} ({error})") from error


@cache
def commit() -> str:
    """The commit of the source, "+" after it if the source was changed; else the version of the package.

    That at the first call: the folder may be at another one by the time that a long run ends.
    """
    folder = Path(__file__).parent
    try:
        # Installed in a folder of some other repository, the source is not that repository's.
        _git(folder, "ls-files", "--error-unmatch", __file__)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", str(folder.parent))
    except (OSError, subprocess.CalledProcessError):
        return f"version {kru.__version__}"
    return head + ("+" if changed else "")


def machine(device: torch.device | None = None) -> dict[str, Any]:
    """What the run was made on, without anything that names it; of a GPU, what it is called and what ran on it."""
    graphics = {}
    if device is not None and device.type == "cuda":
        graphics = {"gpu": torch.cuda.get_device_name(device), "gpu_kernels": gpu.status()}
    return {
        **graphics,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "simd": bindings.simd(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
