"""The page about the baselines: its examples run, its recipes exist, its counts are those of the models."""

import re
from pathlib import Path

import pytest

from kru.lab.cli import parse
from kru.lab.commands.train import Options
from kru.lab.recipes.files import load_recipe
from kru.nn.model import build_model
from kru.optim.parameters import parameter_count

PAGE = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")


def test_the_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


COUNTS = re.findall(r"^\| `([\w-]+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "units", "total", "recurrent"), COUNTS, ids=[row[0] for row in COUNTS])
def test_the_counts_are_those_of_the_models(name: str, units: str, total: str, recurrent: str) -> None:
    recipe = load_recipe(name)
    count = parameter_count(build_model(recipe.model, recipe.task.sizes))
    assert recipe.model.hidden_size == int(units)
    assert count == (int(total.replace(",", "")), int(recurrent.replace(",", "")))


@pytest.mark.parametrize("command", re.findall(r"`kru train ([^`]+)`", PAGE))
def test_the_commands_are_valid(command: str) -> None:
    name, *options = command.split()
    recipe = load_recipe(name)
    parsed = parse(Options, f"train {name}", options, default=Options(recipe), description="")
    assert parsed.recipe.name == name
