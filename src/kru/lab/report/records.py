"""Recorded results, found in folders."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kru.lab.recorded import recorded_paths
from kru.lab.result import read_result

Result = dict[str, Any]


def read_results(folder: Path) -> list[Result]:
    """The results that were recorded in a folder, and those of the runs below it."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: no such folder; record runs in it by kru train RECIPE --results {folder}"
        )
    return [read_result(path) for path in recorded_paths(folder)]


def by_recipe(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of each recipe, by seed."""
    grouped: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda result: int(result["seed"])):
        grouped[result["recipe"]].append(result)
    return dict(grouped)
