"""A recipe: all settings of a run, as frozen dataclasses.

Recipes are written in TOML (`kru.lab.recipes.files`), and every field is also an option on the command line.
"""

from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from kru.lab.tasks.registry import task_name
from kru.nn.kinds import ModelSettings, model_settings
from kru.training.settings import TrainingSettings, dashed

# The command line takes the options of a task from the class of the recipe's.
if TYPE_CHECKING:
    from kru.training.task import Problem as AnyProblem
else:
    AnyProblem = Any


@dataclass(frozen=True)
class Recipe(TrainingSettings):
    """All settings of a run."""

    task: AnyProblem = field(kw_only=True)
    """the task and its settings"""
    model: ModelSettings = field(default_factory=model_settings, kw_only=True)
    start: str = field(default="", kw_only=True)
    """initial weights instead of random ones: a .safetensors file (the suffix is optional) or the folder of a run of
    the same model; {seed} stands for the seed, {results} for the folder of recorded results"""
    name: Annotated[str, tyro.conf.Suppress] = field(default="", kw_only=True)
    """name of the recipe"""
    expected_minutes: Annotated[float, tyro.conf.Suppress] = field(default=0.0, kw_only=True)
    """expected minutes on two cores, for the list of recipes"""


def settings(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe by their dotted names, as on the command line, including the name of the task."""
    flat: dict[str, Any] = {"task": task_name(recipe.task)}
    for outer in fields(recipe):
        value = getattr(recipe, outer.name)
        if is_dataclass(value):
            for inner in fields(value):
                if is_dataclass(getattr(value, inner.name)):
                    continue  # what a task found in its files is no setting
                flat[dashed(f"{outer.name}.{inner.name}")] = getattr(value, inner.name)
        elif outer.name not in ("name", "expected_minutes"):
            flat[dashed(outer.name)] = value
    return flat
