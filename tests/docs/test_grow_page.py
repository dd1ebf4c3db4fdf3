"""The page about growth: its examples run, its recipe is valid, its commands exist."""

import re
from pathlib import Path

from kru.lab.cli import COMMANDS
from kru.lab.recipes.files import load_recipe, parse_recipe

PAGE = (Path(__file__).parents[2] / "docs" / "grow.md").read_text(encoding="utf-8")


def test_the_examples_run() -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    assert names["change"].error < 1e-5


def test_the_section_of_a_recipe_is_valid() -> None:
    [section] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    recipe = parse_recipe(f"steps = 1\n[task]\nname = 'copy'\n{section}", "mine", where="docs/grow.md")
    assert recipe.growth.max_parameters == 10_000


def test_the_commands_exist() -> None:
    for command, name in re.findall(r"^kru (\w+) ([\w-]+)", PAGE, re.MULTILINE):
        assert command in COMMANDS
        if command == "train":
            load_recipe(name)
