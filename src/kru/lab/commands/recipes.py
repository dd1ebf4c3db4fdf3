"""`kru recipes`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from kru.lab.cli import parse
from kru.lab.recipes.files import load_recipe, recipe_names
from kru.lab.recipes.settings import Recipe
from kru.lab.report.text import columns
from kru.nn.model import build_model
from kru.optim.parameters import parameter_count
from kru.training.settings import BUDGET


@dataclass(frozen=True)
class Options:
    """List the recipes: models, parameter counts, budgets, and expected minutes on two cores."""

    beginning: Annotated[str, tyro.conf.Positional] = ""
    """only list recipes whose name starts with this, such as ptb-small"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "recipes", arguments)
    names = [name for name in recipe_names() if name.startswith(options.beginning)]
    if not names:
        raise ValueError(f"no recipe begins with {options.beginning!r}; expected such as copy, adding or ptb")
    rows = [row(load_recipe(name)) for name in names]
    print(columns(["recipe", "model", "units", "parameters", "recurrent", "budget", "minutes"], rows, left=2))
    return 0


def row(recipe: Recipe) -> list[str]:
    """A recipe's line in the list."""
    count = parameter_count(build_model(recipe.model, recipe.task.sizes))
    budget = ", ".join(f"{getattr(recipe, bound):g} {bound}" for bound in BUDGET if getattr(recipe, bound))
    minutes = f"{recipe.expected_minutes:g}" if recipe.expected_minutes else ""
    units = f"{recipe.model.hidden_size:,}"
    return [
        recipe.name,
        recipe.model.kind,
        units,
        f"{count.total:,}",
        f"{count.recurrent:,}",
        budget,
        minutes,
    ]
