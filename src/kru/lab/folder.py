"""Which files in the folder of a run belong together.

A run first writes its last checkpoint, then its weights, then its result. A process can be killed between any two of
these, so a result names what it was made from: the budget, and the digests of the checkpoint and the weights beside it.
"""

import hashlib
from pathlib import Path
from typing import Any

from kru.lab.recipes.files import differences
from kru.lab.recipes.settings import Recipe
from kru.lab.result import parse_result, read_recipe, read_result
from kru.training.files import sync_directory
from kru.training.folder import CHECKPOINT, METRICS, RESULT, WEIGHTS
from kru.training.settings import BUDGET


def made_from(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """What a result of the files in this folder is made from.

    Returns:
        `budget`, the three bounds of the recipe; `checkpoint` and `weights`, the SHA-256 digests of the files.
    """
    return {
        "budget": {bound: getattr(recipe, bound) for bound in BUDGET},
        "checkpoint": _digest(folder / CHECKPOINT),
        "weights": _digest(folder / WEIGHTS),
    }


def current_result(folder: Path, recipe: Recipe) -> bytes:
    """The contents of the result file, if it was made from the other files there and the recipe's budget; else b"".

    A result that does not say, of an earlier version, could be that of an earlier checkpoint.
    """
    path = folder / RESULT
    if not path.exists() or not (folder / WEIGHTS).exists():
        return b""
    data = path.read_bytes()
    return data if parse_result(data, path).get("made_from") == made_from(folder, recipe) else b""


def discard_result(folder: Path) -> None:
    """Remove the result and the weights, before a new checkpoint makes them out of date.

    Nothing is lost: the best weights are in the checkpoint as well, and the result can be made from them again.
    """
    removed = [path for path in (folder / RESULT, folder / WEIGHTS) if path.exists()]
    for path in removed:
        path.unlink()
    if removed:
        sync_directory(folder)


def other_files(folder: Path, own: Recipe | None, *, replaces: Recipe | None = None) -> str:
    """What a run would replace in this folder although it did not write it, in words; "" if there is nothing.

    Args:
        own: the recipe in the checkpoint; None where there is none.
        replaces: without a checkpoint, weights of a recipe with this name and seed may be replaced.
    """
    found = [name for name in (RESULT, WEIGHTS, METRICS) if (folder / name).exists()]
    if own is not None:
        others = [name for name in found if not _IS_OWN[name](folder / name, own)]
        return f"has {_listed(others)} of something else than its run" if others else ""
    # A run that was killed before its first checkpoint leaves a file without a line.
    found = [name for name in found if name != METRICS or _first_bytes(folder / name) != b""]
    if found == [WEIGHTS] and replaces is not None and _is_named(folder / WEIGHTS, replaces):
        return ""
    return f"has {_listed(found)} but no {CHECKPOINT}" if found else ""


def _is_own_result(path: Path, own: Recipe) -> bool:
    try:
        result = read_result(path)
    except ValueError:
        return False
    return (result["recipe"], result["seed"]) == (own.name, own.seed)


def _is_own_weights(path: Path, own: Recipe) -> bool:
    try:
        recipe = read_recipe(path)
    except ValueError:
        return False
    # A model that grew has other factors than its recipe.
    return all(name.startswith("model.") for name in differences(recipe, own, budget=False))


def _is_own_metrics(path: Path, own: Recipe) -> bool:
    # What was not yet on disk when the power failed is missing, or zeros.
    first = _first_bytes(path)
    return first is not None and _LINE.startswith(first.rstrip(b"\0"))


def _is_named(weights: Path, like: Recipe) -> bool:
    try:
        recipe = read_recipe(weights)
    except ValueError:
        return False
    return (recipe.name, recipe.seed) == (like.name, like.seed)


_LINE = b'{"step": '
"""How each line of metrics.jsonl begins."""

_IS_OWN = {RESULT: _is_own_result, WEIGHTS: _is_own_weights, METRICS: _is_own_metrics}


def _first_bytes(path: Path) -> bytes | None:
    """As many as a line begins with; None if it is no file."""
    if not path.is_file():
        return None
    with open(path, "rb") as stream:
        return stream.read(len(_LINE))


def _listed(names: list[str]) -> str:
    return " and ".join(names)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
