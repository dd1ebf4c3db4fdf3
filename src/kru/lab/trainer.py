"""A trainer whose model, task and settings come from a recipe, and the recipe of what it wrote."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from kru.lab.recipes.files import recipe_from, recipe_mapping
from kru.lab.recipes.settings import Recipe
from kru.nn.kinds import ModelSettings
from kru.nn.model import Sizes, build_model
from kru.training.checkpoint import Checkpoint
from kru.training.task import Task
from kru.training.trainer import Trainer


class RecipeTrainer(Trainer):
    """One run of a recipe.

    Args:
        recipe: model and settings.
        task: the recipe's task, loaded.
        source: the recipe's name or path, kept in checkpoints.
        command: the command that a result names, where that is not `kru train`.
        options: the other arguments of `kru.training.trainer.Trainer`.
    """

    def __init__(
        self, recipe: Recipe, task: Task, *, source: str = "", command: str = "", **options: Any
    ) -> None:
        self.recipe = recipe
        self.source = source
        self.command = command
        super().__init__(
            _factory(recipe, task),
            task,
            recipe,
            model_settings=asdict(recipe.model),
            origin={**recipe_header(recipe), "source": source},
            **options,
        )


def _factory(recipe: Recipe, task: Task) -> Callable[[Mapping[str, Any]], nn.Module]:
    sizes = task_sizes(task)
    return lambda model: build_model(model_from(recipe, model), sizes)


def task_sizes(task: Task) -> Sizes:
    """What a loaded task asks of a model."""
    return Sizes(task.input_size, task.output_size, task.last_only)


def model_from(recipe: Recipe, model: Mapping[str, Any]) -> ModelSettings:
    """A recipe's model as a checkpoint describes it: one that grew has other factors than the recipe's."""
    return recipe_from({**recipe_mapping(recipe), "model": dict(model)}, recipe.name, recorded=True).model


def recipe_header(recipe: Recipe) -> dict[str, Any]:
    """What the header of a file says of its recipe."""
    return {"recipe": recipe_mapping(recipe), "name": recipe.name}


def recipe_in(header: Mapping[str, Any]) -> Recipe:
    """The recipe in the header of a file."""
    recipe, name = header.get("recipe"), header.get("name")
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe: expected a table, got {recipe!r}")
    # Commands print the name, and call folders after it.
    if not isinstance(name, str) or Path(name).name != name or name == ".." or not name.isprintable():
        raise ValueError(f"name: expected one that a folder can have, got {name!r}")
    return recipe_from(recipe, name, recorded=True)


def load_checkpoint(path: Path) -> tuple[Recipe, Checkpoint]:
    """A checkpoint that a run of a recipe wrote, and that recipe."""
    checkpoint = Checkpoint.load(path)
    try:
        return recipe_in(checkpoint.origin), checkpoint
    except ValueError as error:
        raise ValueError(f"{path}: expected a recipe in its header ({error})") from error
