"""What a sweep varies: fields of a recipe by their dotted names, read from TOML."""

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from kru.lab.recipes.files import recipe_from, recipe_mapping
from kru.lab.recipes.settings import Recipe

MOST_VALUES = 100_000
"""Values of one field that a grid may have, and points of a whole grid; wider ranges are for drawing from."""

ENTRIES = ("low", "high", "log", "step", "points", "choices")


@dataclass(frozen=True)
class Parameter:
    """One field and the values that it may take.

    Attributes:
        field: the dotted name, such as optimizer.lr.
        distribution: what Optuna draws from.
        grid: the values in a grid; empty if it was not said how a range is divided.
        lists: values by their names in the sweep, where they are lists, which Optuna cannot store.
    """

    field: str
    distribution: BaseDistribution
    grid: tuple[Any, ...]
    lists: Mapping[str, list[Any]]

    def suggest(self, trial: Trial) -> Any:
        """The value of a trial, as stored in the sweep: drawn at the first call, the same ever after."""
        given = self.distribution
        if isinstance(given, FloatDistribution):
            return trial.suggest_float(self.field, given.low, given.high, log=given.log, step=given.step)
        if isinstance(given, IntDistribution):
            return trial.suggest_int(self.field, given.low, given.high, log=given.log, step=given.step)
        assert isinstance(given, CategoricalDistribution)
        return trial.suggest_categorical(self.field, given.choices)


@dataclass(frozen=True)
class Space:
    """All that a sweep varies, and what it was read from."""

    parameters: tuple[Parameter, ...]
    table: dict[str, dict[str, Any]]
    """for each field the entries in TOML, by which two spaces are compared"""

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The values of a trial by field, as stored in the sweep."""
        return {parameter.field: parameter.suggest(trial) for parameter in self.parameters}

    def apply(self, recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
        """The recipe with these values."""
        mapping = recipe_mapping(recipe)
        for parameter in self.parameters:
            value = values[parameter.field]
            _set(mapping, parameter.field, parameter.lists.get(value, value) if parameter.lists else value)
        return recipe_from(mapping, recipe.name)

    def grid(self) -> list[dict[str, Any]]:
        """Every combination of the values of a grid, the last field changing fastest."""
        for parameter in self.parameters:
            if not parameter.grid:
                raise ValueError(f"{parameter.field}: a grid needs points, step or choices")
        points = math.prod(len(parameter.grid) for parameter in self.parameters)
        if points > MOST_VALUES:
            raise ValueError(f"space: expected a grid of at most {MOST_VALUES:,} points, got {points:,}")
        fields = [parameter.field for parameter in self.parameters]
        product = itertools.product(*(parameter.grid for parameter in self.parameters))
        return [dict(zip(fields, values, strict=True)) for values in product]


def load_space(path: Path, recipe: Recipe) -> Space:
    """The space in a TOML file, for a recipe."""
    if not path.is_file():
        raise ValueError(f"space: no file {path}")
    try:
        return parse_space(tomllib.loads(path.read_text(encoding="utf-8")), recipe)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def parse_space(table: Mapping[str, Any], recipe: Recipe) -> Space:
    """The space of a mapping such as TOML gives: `optimizer.lr = {low = 1e-4, high = 1e-2, log = true}`.

    Every field must be one of the recipe, and every bound and choice a value that the recipe can have.
    """
    flat = _flatten(table, "")
    if not flat:
        raise ValueError(
            "expected at least one field, such as penalty = {low = 1e-4, high = 1.0, log = true}"
        )
    return Space(tuple(_parameter(field, entries, recipe) for field, entries in flat.items()), flat)


def _flatten(table: Mapping[str, Any], prefix: str) -> dict[str, dict[str, Any]]:
    """Tables in tables, which TOML makes of dotted names, as dotted names again."""
    flat: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        field = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            raise ValueError(f"{field}: expected a table with low and high, or with choices, got {value!r}")
        if all(isinstance(entry, Mapping) for entry in value.values()) and value:
            flat |= _flatten(value, f"{field}.")
        else:
            flat[field] = dict(value)
    return flat


def _fields(recipe: Recipe) -> dict[str, Any]:
    """The fields that can be varied, by dotted name, and their values."""
    flat: dict[str, Any] = {}
    for key, value in recipe_mapping(recipe).items():
        inner = {f"{key}.{name}": entry for name, entry in value.items()} if isinstance(value, dict) else {}
        flat |= inner or {key: value}
    hidden = ("task.name", "task.found", "expected_minutes")
    return {field: value for field, value in flat.items() if field not in hidden}


def _parameter(field: str, entries: Mapping[str, Any], recipe: Recipe) -> Parameter:
    known = _fields(recipe)
    if field not in known:
        raise ValueError(f"{field}: no such field of the recipe; expected one of {', '.join(known)}")
    present = known[field]
    for key in entries:
        if key not in ENTRIES:
            raise ValueError(f"{field}.{key}: unknown; expected one of {', '.join(ENTRIES)}")
    if "choices" in entries:
        if len(entries) > 1:
            raise ValueError(f"{field}: expected choices alone or a range, got {', '.join(entries)}")
        return _choices(field, entries["choices"], recipe)
    if isinstance(present, bool) or not isinstance(present, int | float):
        raise ValueError(f"{field}: expected choices, since it is not a number, got {', '.join(entries)}")
    return _range(field, entries, recipe, whole=isinstance(present, int))


def _choices(field: str, choices: Any, recipe: Recipe) -> Parameter:
    if not isinstance(choices, list) or not choices:
        raise ValueError(f"{field}.choices: expected a list of values, got {choices!r}")
    for choice in choices:
        _check(field, choice, recipe)
    named = [str(choice) if isinstance(choice, list) else choice for choice in choices]
    if len(set(map(repr, named))) < len(named):
        raise ValueError(f"{field}.choices: expected each value once, got {choices!r}")
    lists = {str(choice): choice for choice in choices if isinstance(choice, list)}
    return Parameter(field, CategoricalDistribution(named), tuple(named), lists)


def _range(field: str, entries: Mapping[str, Any], recipe: Recipe, *, whole: bool) -> Parameter:
    for key in ("low", "high"):
        if key not in entries:
            raise ValueError(f"{field}: expected low and high, or choices, got no {key}")
        _check(field, entries[key], recipe, key)
    low, high, log = entries["low"], entries["high"], entries.get("log", False)
    step, points = entries.get("step"), entries.get("points")
    if not low < high:
        raise ValueError(f"{field}: expected low below high, got {low!r} and {high!r}")
    if not isinstance(log, bool):
        raise ValueError(f"{field}.log: expected true or false, got {log!r}")
    if log and low <= 0:
        raise ValueError(f"{field}.low: expected above 0 on a logarithmic scale, got {low!r}")
    if points is not None and (type(points) is not int or points < 2):
        raise ValueError(f"{field}.points: expected a whole number of at least 2, got {points!r}")
    if points is not None and points > MOST_VALUES:
        raise ValueError(f"{field}.points: expected at most {MOST_VALUES:,}, got {points:,}")
    if step is not None:
        if isinstance(step, bool) or not isinstance(step, int if whole else int | float) or step <= 0:
            kind = "whole number" if whole else "number"
            raise ValueError(f"{field}.step: expected a {kind} above 0, got {step!r}")
        if log or points is not None:
            raise ValueError(f"{field}.step: expected without log and points")
    grid = _divided(field, low, high, log, step, points, whole=whole)
    if step is not None:
        high = grid[-1]
    distribution: BaseDistribution
    if whole:
        distribution = IntDistribution(low, high, log=log, step=step or 1)
    else:
        distribution = FloatDistribution(float(low), float(high), log=log, step=step)
    return Parameter(field, distribution, grid, {})


def _divided(
    field: str, low: float, high: float, log: bool, step: float | None, points: int | None, *, whole: bool
) -> tuple[Any, ...]:
    """The values of a range in a grid: by `step`, or so many `points` at equal distances or ratios."""
    if step is not None:
        # In decimals: 0.1 + 2 * 0.1 is then 0.3.
        first, width = Decimal(str(low)), Decimal(str(step))
        count = int((Decimal(str(high)) - first) // width) + 1
        if count > MOST_VALUES:
            raise ValueError(f"{field}.step: expected at most {MOST_VALUES:,} values, got {count:,}")
        return tuple((int if whole else float)(first + index * width) for index in range(count))
    if points is None:
        each = range(int(low), int(high) + 1)
        return tuple(each) if whole and not log and len(each) <= MOST_VALUES else ()
    values = np.geomspace(low, high, points) if log else np.linspace(low, high, points)
    # Ends that rounding moved would be outside the range.
    inside = np.clip(values, low, high).tolist()
    return tuple(dict.fromkeys(round(value) for value in inside)) if whole else tuple(inside)


def _check(field: str, value: Any, recipe: Recipe, key: str = "choices") -> None:
    """Raise unless the recipe can have this value."""
    mapping = recipe_mapping(recipe)
    _set(mapping, field, value)
    try:
        recipe_from(mapping, recipe.name)
    except ValueError as error:
        # The field is named already, in one of its two spellings.
        reason = str(error).removeprefix(f"{field}: ").removeprefix(f"{field.replace('_', '-')}: ")
        raise ValueError(f"{field}.{key}: {reason}") from None


def _set(mapping: dict[str, Any], field: str, value: Any) -> None:
    *tables, last = field.split(".")
    for table in tables:
        mapping = mapping[table]
    mapping[last] = value
