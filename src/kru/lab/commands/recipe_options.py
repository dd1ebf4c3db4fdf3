"""Options of commands whose first argument is a recipe, each setting of which is an option as well."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kru.lab.cli import UsageError, parse
from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.recipes.settings import Recipe
from kru.nn.kinds import expect_settings, find_kind, known_settings
from kru.training.settings import BUDGET

RECIPE_HELP = """\
RECIPE is a name listed by `kru recipes`, or the path of a .toml file. Every setting of the recipe is also an
option; the defaults shown are the recipe's. --steps, --epochs or --minutes replaces its whole budget."""


def parse_with_recipe(
    kind: Callable[[Recipe], Any], name: str, arguments: Sequence[str], description: str
) -> tuple[str, Any]:
    """The recipe as it was given, by name or path, and the options `kind`, whose first field it is."""
    asks_help = any(argument in ("-h", "--help") for argument in arguments)
    if arguments and not arguments[0].startswith("-"):
        source, rest = arguments[0], list(arguments[1:])
    elif asks_help:
        source, rest = "copy-1000-kru", ["--help"]
    else:
        raise UsageError("expected the name of a recipe first; `kru recipes` lists them")
    recipe = of_kind(load_recipe(source), rest)
    expect_applying(recipe, rest)
    if any(argument.split("=")[0] in [f"--{bound}" for bound in BUDGET] for argument in rest):
        recipe = with_budget(recipe)
    return source, parse(kind, f"{name} {source}", rest, default=kind(recipe), description=description)


def of_kind(recipe: Recipe, arguments: Sequence[str]) -> Recipe:
    """The recipe with the model that --model.kind names: the settings that the two kinds share stay as they are."""
    spelled = [argument.replace("_", "-") for argument in arguments]
    kind = recipe.model.kind
    for index, argument in enumerate(spelled):
        if argument == "--model.kind" and index + 1 < len(arguments):
            kind = arguments[index + 1]
        elif argument.startswith("--model.kind="):
            kind = arguments[index].partition("=")[2]
    if kind == recipe.model.kind:
        return recipe
    find_kind(kind, imports=True)
    return replace(recipe, model=recipe.model.changed(kind))


def expect_applying(recipe: Recipe, arguments: Sequence[str]) -> None:
    """Raise if a setting of the command line is one of other kinds of model."""
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--model.").removeprefix("no-").replace("-", "_")
        if argument.startswith("--model.") and name in known_settings():
            expect_settings(recipe.model.kind, [name])
