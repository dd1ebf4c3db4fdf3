"""Recipes by name, from those that ship with the package, and your own by path: flat TOML files."""

import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from kru.lab.recipes.settings import Recipe, settings
from kru.lab.recipes.shipped import shipped_recipes
from kru.lab.spelling import did_you_mean
from kru.lab.tasks.registry import find_task, task_name
from kru.nn.kinds import ModelSettings, expect_settings, find_kind, known_settings
from kru.training.settings import BUDGET


def recipe_names() -> list[str]:
    """The names of the recipes that ship with the package."""
    return list(shipped_recipes())


def load_recipe(name: str) -> Recipe:
    """A recipe of the package by its name, or one of your own by its path, which ends in .toml."""
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise ValueError(f"recipe: no file {name}")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}: expected a TOML file in UTF-8 ({error})") from error
        return parse_recipe(text, path.stem, where=name)
    if name not in shipped_recipes() and Path(name).expanduser().exists():
        task = "text" if Path(name).suffix in (".txt", ".text", ".md") else "sequences"
        raise ValueError(
            f"recipe: expected the name of a recipe or a .toml file, got data, {name}; `kru fit {name} -o MODEL` fits "
            f'a model to it, and a recipe reads it with [task] name = "{task}", data = "{name}"'
        )
    if name not in shipped_recipes():
        raise ValueError(f"recipe: no recipe {name!r}{_near(name)}; `kru recipes` lists them")
    return recipe_from(shipped_recipes()[name], name)


def parse_recipe(text: str, name: str, *, where: str) -> Recipe:
    """The recipe that a TOML text describes."""
    try:
        return recipe_from(tomllib.loads(text), name)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: {error}") from error


def recipe_from(mapping: Mapping[str, Any], name: str, *, recorded: bool = False) -> Recipe:
    """The recipe of a nested mapping such as TOML gives, the task's name as `name` in the table `task`.

    Args:
        recorded: whether it comes from a file of weights. Such a file may load no module that it names, and older ones
            have every setting that any kind of model had.
    """
    task = dict(_expect_table(mapping.get("task", {}), "task"))
    problem = find_task(task.pop("name", None), imports=not recorded)
    model = _model_from(_expect_table(mapping.get("model", {}), "model"), recorded=recorded)
    rest = {key: value for key, value in mapping.items() if key not in ("task", "model")}
    recipe: Recipe = _build(Recipe, rest, "", task=_build(problem, task, "task."), model=model, name=name)
    return recipe


def _model_from(mapping: Mapping[str, Any], *, recorded: bool) -> ModelSettings:
    kind = _value(str, mapping.get("kind", "kru"), "model.kind")
    own = find_kind(kind, imports=not recorded).settings
    applies = {entry.name for entry in fields(own)}
    others = {key for key in mapping if key not in applies and key in known_settings()}
    if not recorded:
        expect_settings(kind, sorted(others))
    kept = {key: value for key, value in mapping.items() if key not in others}
    config: ModelSettings = _build(own, {**kept, "kind": kind}, "model.")
    return config


def recipe_mapping(recipe: Recipe) -> dict[str, Any]:
    """The inverse of `recipe_from`, for JSON."""
    mapping = asdict(recipe)
    mapping["task"] = {"name": task_name(recipe.task), **mapping["task"]}
    del mapping["name"]
    return mapping


def differences(recipe: Recipe, other: Recipe, *, budget: bool = True) -> dict[str, Any]:
    """The settings of `recipe` that `other` has not, by dotted name; without the budget if that is False."""
    theirs = settings(other)
    missing = object()
    return {
        name: value
        for name, value in settings(recipe).items()
        if value != theirs.get(name, missing) and (budget or name not in BUDGET)
    }


def command_line(recipe: Recipe, source: str) -> str:
    """The `kru train` line that runs a recipe, given the recipe's name or path it was made from."""
    base = load_recipe(source)
    changed = {"seed": recipe.seed, **differences(recipe, base)}
    if any(bound in changed for bound in BUDGET):
        # A budget on the command line replaces the whole budget of the recipe.
        bounds = {bound: getattr(recipe, bound) for bound in BUDGET}
        changed = {name: value for name, value in changed.items() if name not in BUDGET}
        changed |= {bound: value for bound, value in bounds.items() if value}
    return " ".join(
        ["kru train", shlex.quote(source), *(_option(name, value) for name, value in changed.items())]
    )


def with_budget(recipe: Recipe, **bounds: float) -> Recipe:
    """The recipe with these bounds (steps, epochs, minutes) and no others."""
    budget: dict[str, Any] = {bound: bounds.get(bound, 0) for bound in BUDGET}
    return replace(recipe, **budget)


def _option(name: str, value: Any) -> str:
    if isinstance(value, bool):
        prefix, _, last = name.rpartition(".")
        return f"--{prefix}{'.' if prefix else ''}{'' if value else 'no-'}{last}"
    if isinstance(value, tuple):
        return " ".join([f"--{name}", *map(str, value)])
    return f"--{name} {shlex.quote(str(value))}"


def _near(name: str) -> str:
    """The recipe that may have been meant; else those of the task."""
    meant = did_you_mean(name, recipe_names())
    if meant:
        return meant
    task = name.rpartition("-")[0] if "-" in name else name
    near = [other for other in recipe_names() if task and other.startswith(task)]
    return f" (there are {', '.join(near)})" if near else ""


def _build(kind: Any, mapping: Mapping[str, Any], prefix: str, **given: Any) -> Any:
    """A dataclass from a mapping, every key known and every value of the field's type."""
    hints = get_type_hints(kind)
    known = {entry.name for entry in fields(kind)} - set(given)
    values: dict[str, Any] = dict(given)
    for key, value in mapping.items():
        if key not in known:
            near = did_you_mean(key, known)
            raise ValueError(f"{prefix}{key}: unknown{near}; expected one of {', '.join(sorted(known))}")
        values[key] = _value(hints[key], value, f"{prefix}{key}")
    return kind(**values)


def _value(hint: Any, value: Any, name: str) -> Any:
    if is_dataclass(hint):
        return _build(hint, _expect_table(value, name), f"{name}.")
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name}: expected one of {', '.join(get_args(hint))}, got {value!r}")
        return value
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name}: expected a list, got {value!r}")
        return tuple(_value(element, entry, f"{name}[{index}]") for index, entry in enumerate(value))
    assert not isinstance(hint, UnionType), hint
    if hint is float and type(value) is int:
        if abs(value) > sys.float_info.max:
            raise ValueError(f"{name}: expected a number up to {sys.float_info.max:.1e}, got {value!r}")
        return float(value)
    if type(value) is not hint:
        raise ValueError(f"{name}: expected {_KINDS[hint]}, got {value!r}")
    return value


_KINDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def _expect_table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a table, got {value!r}")
    return value
