"""The examples of docs/layers.md run, from the first to the last."""

import re
from pathlib import Path

from matplotlib import pyplot


def test_the_examples_run() -> None:
    pyplot.switch_backend("agg")
    page = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    pyplot.close("all")
