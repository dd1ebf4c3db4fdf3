"""The examples of docs/estimators.md run, from the first to the last."""

import re
from pathlib import Path

import pytest


@pytest.mark.usefixtures("one_thread")
def test_the_examples_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
