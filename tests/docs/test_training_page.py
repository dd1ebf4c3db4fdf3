"""The recipe on the page about training, and the commands on it."""

import re
from pathlib import Path

import pytest

from kru.lab.cli import COMMANDS
from kru.lab.recipes.files import load_recipe, parse_recipe
from kru.lab.report.targets import target_names
from kru.nn.model import build_model

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_recipe_is_valid():
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    recipe = parse_recipe(text, "mine", where="docs/training.md")
    model = build_model(recipe.model, recipe.task.sizes)
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


@pytest.mark.parametrize("command", re.findall(r"^kru (\w+)", PAGE, re.MULTILINE))
def test_the_commands_exist(command):
    assert command in COMMANDS


def test_the_recipes_and_targets_exist():
    for name in re.findall(r"^kru train ([\w-]+)", PAGE, re.MULTILINE):
        load_recipe(name)
    table = re.findall(r"^\| `([\w-]+)` \| (?:T =|permuted|small|JSB|the corpus|both)", PAGE, re.MULTILINE)
    assert table == target_names()
