"""The page about own models and tasks: its commands run as it gives them, with the example of the repository."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kru.lab.cli import main
from kru.lab.recipes.files import load_recipe, parse_recipe

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
MODULE = "own_matrix_and_task"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example in the current directory."""
    for name in (f"{MODULE}.py", "first_symbol.toml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("one_thread")
def test_the_commands_run(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    commands = re.findall(r"^kru (.*)$", PAGE, re.MULTILINE)
    names = [command.split()[0] for command in commands]
    assert names == ["train", "evaluate", "inspect", "export", "results", "plot"]
    for command in commands:
        assert main(command.split()) == 0, capsys.readouterr().err
        shown[command.split()[0]] = capsys.readouterr().out
    assert float(re.search(r"accuracy ([\d.]+) on test", shown["evaluate"])[1]) > 90
    assert re.search(r"^First symbol, T = 20$", shown["results"], re.MULTILINE)
    # 31 angles of 64 units.
    assert re.search(r"^first_symbol +circulant RNN +[\d,]+ +31 ", shown["results"], re.MULTILINE)
    assert [Path(line).name for line in shown["plot"].splitlines()] == [
        "own-first-symbol-t-20.png",
        "own-first-symbol-t-20.svg",
    ]
    assert (example / "mine/c/model.c").is_file()
    # Another process has not imported the module, and the weights alone do not make it.
    line = [
        sys.executable,
        "-m",
        "kru",
        "evaluate",
        "mine/own_matrix_and_task-FirstSymbol/first_symbol-seed1",
    ]
    refused = subprocess.run(line, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"--import {MODULE}" in refused.stderr
    accepted = subprocess.run([*line, "--import", MODULE], capture_output=True, text=True, check=False)
    assert accepted.stdout == shown["evaluate"], accepted.stderr


def test_the_matrix_is_orthogonal_and_circulant(example: Path) -> None:
    load_recipe("first_symbol.toml")
    for size in (6, 7):
        [w] = sys.modules[MODULE].CirculantMatrix(size).double().factors()
        torch.testing.assert_close(w.T @ w, torch.eye(size, dtype=w.dtype))
        torch.testing.assert_close(w.roll((1, 1), (0, 1)), w)


def test_the_recipe_of_the_page_is_valid(example: Path) -> None:
    [recipe] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_recipe(recipe, "mine", where="docs/extending.md").model.spread == 1.0


def test_an_import_without_a_module_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", "--import"]) == 2
    assert "--import: expected the name of a module" in capsys.readouterr().err
    assert main(["results", "--import=no_such_module"]) == 2
    assert "--import: cannot import no_such_module" in capsys.readouterr().err
