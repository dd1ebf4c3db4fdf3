"""Recipes for files of one's own: training, evaluation, sweeps, results and exports as for every other recipe."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.io.wavfile
import torch

from kru.lab.cli import main
from kru.lab.data import DataError
from kru.lab.recipes.files import command_line, parse_recipe, recipe_from, recipe_mapping
from kru.lab.result import read_weights
from kru.lab.tasks.own_files import Sequences, Text

from ...export.compiled import Compiled
from ...export.test_own_data import compiled_results, label_of

RECIPE = """
steps = {steps}
penalty = 0.01
optimizer = {{ name = "adam", lr = 0.01 }}
[task]
name = "{name}"
data = "{data}"
{more}
[model]
kind = "kru-gru"
hidden_size = 16
readout = "{readout}"
"""


def recipe(name: str, data: str, more: str = "", steps: int = 60, readout: str = "mean") -> str:
    return RECIPE.format(name=name, data=data, more=more, steps=steps, readout=readout)


def waves(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.array(["slow", "fast"] * (count // 2))
    speed = np.where(y == "slow", 0.2, 0.7)[:, None, None]
    return 5 + np.sin(speed * np.arange(30) + rng.uniform(0, 6, size=(count, 2, 1))), y


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    X, y = waves(40, 0)
    np.savez("d.npz", X=X, y=y)
    X, y = waves(10, 1)
    np.savez("new.npz", X=X, y=y)
    return tmp_path


@pytest.mark.usefixtures("one_thread")
def test_labels_through_all_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(recipe("sequences", "d.npz", 'test = "new.npz"'))
    assert main(["train", "mine.toml", "--quiet", "--results", "mine"]) == 0
    accuracy = re.search(r"accuracy ([\d.]+) on test", capsys.readouterr().out)
    assert accuracy
    assert float(accuracy[1]) >= 90
    weights = Path("mine/sequences/mine-seed1")
    assert main(["evaluate", str(weights)]) == 0
    assert accuracy[1] in capsys.readouterr().out
    assert main(["results", "--results", "mine"]) == 0
    assert "mine" in capsys.readouterr().out
    # Weights alone are enough for an export: labels and scaling are in their recipe.
    Path("d.npz").unlink()
    assert main(["export", str(weights), "--to", "c99", "-o", "c"]) == 0
    header = Path("c/model.h").read_text()

    class Written:
        files = (Path("c/model.h"), Path("c/model.c"))
        state_bytes = int(re.search(r"State: (\d+) bytes", header)[1])

    compiled = Compiled(Written)
    X, y = waves(10, 1)
    said = [label_of(compiled, out) for out in compiled_results(compiled, list(X.astype(np.float32)))]
    right = json.loads(weights.with_suffix(".json").read_text())["test"]
    assert 100 * np.mean(np.array(said) == y) == pytest.approx(right)


@pytest.mark.usefixtures("one_thread")
def test_a_sweep_over_settings_of_one_s_own_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    Path("mine.toml").write_text(recipe("sequences", "d.npz", steps=4))
    Path("space.toml").write_text(
        "optimizer.lr = {low = 0.001, high = 0.01, points = 2}\ntask.differences = {choices = [true, false]}\n"
    )
    assert main(["sweep", "mine.toml", "--space", "space.toml", "--sampler", "grid"]) == 0
    out = capsys.readouterr().out
    trials = re.findall(r"^ +\d +(0\.[01]+) +(True|False) ", out, re.MULTILINE)
    assert len(set(trials)) == 4, out


def test_numbers_texts_and_sounds(folder: Path) -> None:
    X, _ = waves(40, 0)
    np.savez("n.npz", X=X, speed=X[:, 0].std(1))
    Path("t.txt").write_text("naïve café. " * 60, encoding="utf-8")
    rng = np.random.default_rng(0)
    for index in range(12):
        path = Path("sounds") / ("low" if index % 2 else "high") / f"{index}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        tone = np.sin((0.1 if index % 2 else 0.8) * np.arange(900)) + 0.01 * rng.normal(size=900)
        scipy.io.wavfile.write(path, 8000, tone.astype(np.float32) / 2)
    for text, kind in (
        (recipe("sequences", "n.npz", 'target = "speed"', steps=3), Sequences),
        (recipe("sequences", "sounds", 'features = "mfcc"', steps=3), Sequences),
        (recipe("text", "t.txt", "window = 16", steps=3, readout="task"), Text),
        (recipe("text", "t.txt", 'unit = "bytes"', steps=3, readout="task"), Text),
    ):
        Path("r.toml").write_text(text)
        assert main(["train", "r.toml", "--quiet", "--out", "run"]) == 0
        loaded, _ = read_weights(Path("run/weights.safetensors"))
        assert isinstance(loaded.task, kind)
        assert main(["export", "run", "--to", "js", "-o", "js"]) == 0
        for path in [*Path("run").iterdir(), *Path("js").iterdir()]:
            path.unlink()
        Path("js").rmdir()
        assert recipe_from(recipe_mapping(loaded), "r") == loaded
        assert command_line(loaded, "r.toml") == "kru train r.toml --seed 1"


def test_other_settings_read_the_files_again(folder: Path) -> None:
    task = parse_recipe(recipe("sequences", "d.npz"), "r", where="r.toml").task
    assert (task.found.inputs, task.found.labels) == (4, ("fast", "slow"))
    assert Sequences("d.npz", differences=False, found=task.found).found.inputs == 2
    loaded = task.load()
    assert [loaded.size(split) for split in ("train", "valid", "test")] == [29, 3, 8]
    seen = torch.cat(
        [loaded.take(split, np.arange(loaded.size(split))).inputs[0] for split in ("train", "valid", "test")]
    )
    assert len(torch.unique(seen, dim=0)) == 40
    np.savez("d.npz", X=np.zeros((40, 2, 30)), y=["slow", "quick"] * 20)
    with pytest.raises(DataError, match=r"d\.npz: expected the labels fast, slow, got quick, slow"):
        task.load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            recipe("sequences", ""),
            'task.data: expected a file or a folder, got none; [task] name = "sequences"',
        ),
        (recipe("sequences", "none.npz"), "none.npz: expected a file or a folder, got nothing there"),
        (recipe("sequences", "d.npz", 'target = "z"'), "d.npz: expected targets, got none"),
        (
            recipe("sequences", "d.npz", 'test = "other.npz"'),
            "other.npz: expected one of the labels fast, slow, got 'up'",
        ),
        (recipe("text", "none.txt", readout="task"), "none.txt: expected a file, got nothing there"),
        (
            recipe("text", "latin.txt", readout="task"),
            'expected UTF-8, got byte 0xe9 at 3; unit = "bytes" takes any file',
        ),
        (recipe("text", "short.txt", readout="task"), "short.txt: expected at least 160 symbols, got 5"),
        (
            recipe("text", "short.txt", "window = 0", readout="task"),
            "task.window: expected at least 1, got 0",
        ),
    ],
)
def test_mistakes_are_one_line(
    text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("other.npz", X=np.zeros((4, 2, 30)), y=["up"] * 4)
    Path("latin.txt").write_bytes("café".encode("latin-1") * 100)
    Path("short.txt").write_text("hello")
    Path("r.toml").write_text(text)
    assert main(["train", "r.toml", "--quiet"]) != 0
    assert message in capsys.readouterr().err


def test_data_in_place_of_a_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "d.npz"]) == 2
    error = capsys.readouterr().err
    assert "got data, d.npz; `kru fit d.npz -o MODEL` fits a model to it" in error
    assert '[task] name = "sequences", data = "d.npz"' in error
