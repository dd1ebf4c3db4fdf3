"""The page about compression: its examples run, its commands exist."""

import re
from pathlib import Path

from kru.lab.cli import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "compress.md").read_text(encoding="utf-8")


def test_the_examples_run() -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    assert names["report"].compressed == 6400


def test_the_commands_exist() -> None:
    found = re.findall(r"^kru (\w+)", PAGE, re.MULTILINE)
    assert len(found) >= 2
    assert set(found) <= set(COMMANDS)
