"""`kru export` on weights that `kru train` left."""

import re

import numpy as np
import pytest
import torch

from kru.lab.cli import main
from kru.lab.result import read_weights

from .compiled import Compiled

RECIPE = """
steps = 3
batch_size = 2

[task]
name = "copy"
T = 5

[model]
kind = "kru-gru"
hidden_size = 6

[evaluation]
sequences = 2
"""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run on symbols, of a few steps."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "tiny.toml").write_text(RECIPE)
    out = folder / "run"
    assert main(["train", str(folder / "tiny.toml"), "--quiet", "--out", str(out)]) == 0
    return out


def test_c99_of_a_run(run_folder, tmp_path, capsys) -> None:
    out = tmp_path / "deep" / "c"
    assert main(["export", str(run_folder), "--to", "c99", "-o", str(out), "--name", "copier"]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"copier\.h  [\d,]+ bytes\n.*copier\.c  [\d,]+ bytes\nflash: [\d,]+ bytes of weights", shown
    )
    assert re.search(r"RAM: [\d,]+ bytes", shown)
    header = (out / "copier.h").read_text()
    assert "from tiny seed 1" in header
    assert "#define COPIER_SYMBOLS 10" in header

    class Written:
        files = (out / "copier.h", out / "copier.c")
        state_bytes = int(re.search(r"State: (\d+) bytes", header)[1])

    _, model = read_weights(run_folder / "weights.safetensors")
    symbols = torch.randint(10, (12,))
    with torch.no_grad():
        expected = model(symbols.unsqueeze(1))[0][:, 0]
    compiled = Compiled(Written)
    actual = np.stack([compiled.step(symbol) for symbol in symbols])
    np.testing.assert_allclose(actual, expected.numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["onnx", "pt2"])
def test_other_formats(form: str, run_folder, tmp_path, capsys) -> None:
    pytest.importorskip("onnx")
    weights = str(run_folder / "weights.safetensors")
    assert main(["export", weights, "--to", form, "--out", str(tmp_path / "o")]) == 0
    names = sorted(file.name for file in (tmp_path / "o").iterdir())
    assert names == [f"model_sequence.{form}", f"model_step.{form}"]
    assert capsys.readouterr().out.count(" bytes\n") >= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "--to", "c99", "-o", "o"], "nothing: no such weights"),
        (["{run}", "--to", "tflite", "-o", "o"], "invalid choice 'tflite'"),
        (["{run}", "--to", "onnx", "--int8", "-o", "o"], "int8: expected --to c99 or js, got --to onnx"),
        (["{run}", "--to", "c99", "-o", "o", "--name", "x;y"], "name: expected a letter"),
        (["{run}", "--to", "c99", "-o", "there"], "there: exists; expected the name of a new folder"),
        (["{run}/checkpoint.safetensors", "--to", "c99", "-o", "o"], "expected a recipe in its header"),
        (["there/other.safetensors", "--to", "c99", "-o", "o"], "expected a whole safetensors file"),
        (["{run}", "-o", "o"], "--to"),
        (["{run}", "--to", "c99"], "--out"),
    ],
)
def test_bad_input_is_one_line(arguments, message: str, run_folder, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "other.safetensors").write_bytes(b"not a weights file")
    assert main(["export", *(argument.format(run=run_folder) for argument in arguments)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("kru export: ")
    assert complaint.count("\n") == 1
    assert message in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
