"""The page about reservoirs: its examples run."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "reservoirs.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    assert names["error"] < 0.05
    assert names["score"] > 0.9
    assert names["accuracy"] > 0.9
    np.testing.assert_allclose(names["outputs"], names["delayed"].predict(names["u"])[0, :10], atol=1e-9)
    assert names["fitted"].linear.weight.shape == (1, 128)


def test_every_setting_in_the_table_exists() -> None:
    from kru.reservoir import EchoStateForecaster

    settings = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(settings) >= 6
    assert set(settings) <= set(EchoStateForecaster().get_params())
