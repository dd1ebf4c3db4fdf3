"""Where runs are recorded: RESULTS/TASK/RECIPE-seedN.json, and the weights beside it as .safetensors.

Runs that cannot be compared with the others (timed ones, quick ones, other data) have a folder of results of their own.
"""

from pathlib import Path
from typing import Any

from kru.lab.recipes.settings import Recipe
from kru.lab.result import write_result
from kru.lab.tasks.registry import task_name
from kru.training.files import write_atomically
from kru.training.folder import RESULT, WEIGHTS


def record_path(results: Path, recipe: Recipe) -> Path:
    """The file of a recipe's result in a folder of results.

    >>> from kru.lab.recipes.files import load_recipe
    >>> record_path(Path("results"), load_recipe("pmnist-kru")).as_posix()
    'results/mnist/pmnist-kru-seed1.json'
    """
    # A task that is known as module:Name has no character in its folder that a file system may refuse.
    folder = task_name(recipe.task).replace(":", "-")
    return results / folder / f"{recipe.name}-seed{recipe.seed}.json"


def recorded_paths(results: Path) -> list[Path]:
    """All results in a folder of results, and those of runs in the folders below it."""
    return sorted([*results.glob("*/*-seed*.json"), *results.glob(f"*/{RESULT}")])


def record(recipe: Recipe, result: dict[str, Any], folder: Path, results: Path) -> None:
    """Put the result and the weights of the run in `folder` where `kru results` and `kru evaluate` read them."""
    path = record_path(results, recipe)
    write_atomically(path.with_suffix(Path(WEIGHTS).suffix), (folder / WEIGHTS).read_bytes())
    write_result(path, result)
