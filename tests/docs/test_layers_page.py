"""The examples of docs/layers.md run, from the first to the last."""

import re
from pathlib import Path

import pytest
from matplotlib import pyplot

ROOT = Path(__file__).parents[2]


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    page = (ROOT / "docs" / "layers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    pyplot.close("all")
