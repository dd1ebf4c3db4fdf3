"""The files of a run, and which of them belong together.

A run first writes its last checkpoint, then its weights, then its result. A process can be killed between any two of
these, so a result names what it was made from: the budget, and the digests of the checkpoint and the weights beside it.
"""

import hashlib
from pathlib import Path
from typing import Any

from kru.training.config import BUDGET, Recipe
from kru.training.files import sync_directory
from kru.training.result import parse_result

CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
WEIGHTS = "weights.safetensors"
METRICS = "metrics.jsonl"


def origin(folder: Path, recipe: Recipe) -> dict[str, Any]:
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

    A result without an origin, of an earlier version, could be that of an earlier checkpoint.
    """
    path = folder / RESULT
    if not path.exists() or not (folder / WEIGHTS).exists():
        return b""
    data = path.read_bytes()
    return data if parse_result(data, path).get("origin") == origin(folder, recipe) else b""


def discard_result(folder: Path) -> None:
    """Remove the result and the weights, before a new checkpoint makes them out of date.

    Nothing is lost: the best weights are in the checkpoint as well, and the result can be made from them again.
    """
    removed = [path for path in (folder / RESULT, folder / WEIGHTS) if path.exists()]
    for path in removed:
        path.unlink()
    if removed:
        sync_directory(folder)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
