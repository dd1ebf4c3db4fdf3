"""The recipes that ship with the package: one TOML file for each family of tasks, such as music.toml.

A recipe TASK-MODEL is put together from four tables, of which later ones win:

    [defaults]               what all recipes of the file have
    [models.MODEL]           what a model has with every task of the file
    [tasks.TASK]             what a task has with every model
    [tasks.TASK.models.MODEL]

A model listed under `models` has a recipe for every task of the file, one listed only under a task has that recipe.
`model.kind` is the name of the model unless a table says otherwise, and ``{model}`` in `start` stands for that name.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

Table = Mapping[str, Any]


@cache
def shipped_recipes() -> dict[str, Table]:
    """The shipped recipes in the form of an own recipe file, by name and in alphabetical order."""
    found: dict[str, Table] = {}
    for entry in resources.files("kru.lab.recipes").iterdir():
        if entry.name.endswith(".toml"):
            found |= expand(tomllib.loads(entry.read_text(encoding="utf-8")))
    return dict(sorted(found.items()))


def expand(family: Table) -> dict[str, Table]:
    """The recipes of a file, by name.

    >>> family = '''
    ... [defaults]
    ... epochs = 8
    ... [models.kru]
    ... [tasks.jsb]
    ... task.collection = "jsb"
    ... [tasks.jsb.models]
    ... kru.epochs = 9
    ... '''
    >>> expand(tomllib.loads(family))
    {'jsb-kru': {'epochs': 9, 'task': {'collection': 'jsb'}, 'model': {'kind': 'kru'}}}
    """
    unknown = sorted(family.keys() - {"defaults", "models", "tasks"})
    if unknown:
        raise ValueError(f"recipes: expected the tables defaults, models and tasks, got {', '.join(unknown)}")
    everywhere = family.get("models", {})
    recipes = {}
    for task, table in family["tasks"].items():
        here = table.get("models", {})
        of_task = {key: value for key, value in table.items() if key != "models"}
        for model in dict.fromkeys([*everywhere, *here]):
            tables = [family.get("defaults", {}), everywhere.get(model, {}), of_task, here.get(model, {})]
            recipes[f"{task}-{model}"] = _recipe(model, tables)
    return recipes


def _recipe(model: str, tables: list[Table]) -> Table:
    merged: Table = {}
    for table in tables:
        merged = _merged(merged, table)
    merged = {**merged, "model": {"kind": model, **merged.get("model", {})}}
    if "start" in merged:
        # The seed and the folder of results are known when a run starts.
        merged["start"] = merged["start"].replace("{model}", model)
    return merged


def _merged(base: Table, change: Table) -> Table:
    both = dict(base)
    for key, value in change.items():
        both[key] = _merged(both.get(key, {}), value) if isinstance(value, Mapping) else value
    return both
