"""The spaces on the page about sweeps, its commands, and the figure."""

import re
import tomllib
from pathlib import Path

from kru.lab.cli import COMMANDS
from kru.lab.recipes.files import load_recipe
from kru.lab.sweep.space import parse_space

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "sweep.md").read_text(encoding="utf-8")


def test_the_spaces_are_valid():
    recipe = load_recipe("jsb-kru")
    spaces = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(spaces) == 2
    for text in spaces:
        assert parse_space(tomllib.loads(text), recipe).parameters
    [inline] = re.findall(r"`(\{low = .*?\})`", PAGE)
    assert len(parse_space(tomllib.loads(f"penalty = {inline}"), recipe).grid()) == 5


def test_commands_and_options_exist():
    from kru.lab.commands.sweep import Options

    assert "sweep" in COMMANDS
    fields = set(Options.__dataclass_fields__)
    for option in (
        "trials",
        "workers",
        "sampler",
        "startup",
        "prune",
        "name",
        "storage",
        "out",
        "show",
        "space",
    ):
        assert option in fields
        assert f"--{option}" in PAGE or f"--no-{option}" in PAGE


def test_figures_exist():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", PAGE):
        assert (DOCS / path).is_file()
