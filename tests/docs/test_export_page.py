"""The examples of docs/export.md run: those in Python, and the digit reader in C."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kru.lab.data import DataError
from kru.lab.recipes.files import load_recipe
from kru.lab.result import read_weights, write_weights
from kru.lab.tasks import Task
from kru.nn.model import seeded_model

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
WEIGHTS = "results/mnist/pmnist-kru-seed1"

# Importing torch's tracer uses parts of torch that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def test_the_python_runs(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert sorted(path.name for path in (tmp_path / "build").iterdir()) == [
        "activity",
        "program",
        "stream",
        "tagger",
    ]
    assert "RAM: " in capsys.readouterr().out


def weights_and_task(folder: Path) -> tuple[Path, Task]:
    """The recorded weights; before there are any, those that a run begins with, and without data those of a problem
    that needs none."""
    path, settings = ROOT / f"{WEIGHTS}.safetensors", load_recipe("pmnist-kru")
    try:
        task: Task = settings.task.load()
    except DataError:
        settings = load_recipe("adding-100-kru")
        task = settings.task.load()
    if "mnist" not in settings.name or not path.exists():
        path = folder / "weights.safetensors"
        model = seeded_model(settings.model, settings.task.sizes, 1)
        write_weights(path, model.state_dict(), settings)
    return path, task


def test_the_commands_run(tmp_path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no cc here")
    weights, task = weights_and_task(tmp_path)
    batch = task.eval_batches("test", 1)[7]
    [commands] = [block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "kru export" in block]
    assert len(commands.splitlines()) == 3
    programs = {".venv/bin/kru": f"{sys.executable} -m kru", ".venv/bin/python": sys.executable}
    script = re.sub(r"^\S+venv/bin/\w+", lambda found: programs[found[0]], commands, flags=re.MULTILINE)
    script = script.replace(WEIGHTS, str(weights)).replace("build/", f"{tmp_path}/")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["sh", "-e", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    _, model = read_weights(weights)
    with torch.no_grad():
        expected = int(model.eval()(batch.inputs)[0][0].argmax())
    assert done.stdout.endswith(f"read in {len(batch.inputs)} steps: {expected}\n")
    if task.output_size > 1:
        assert done.stderr == f"the right answer: {int(batch.targets)}\n"
    assert re.search(r"RAM: [\d,]+ bytes", done.stdout)
