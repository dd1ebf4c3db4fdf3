"""What can't be exported gets one line that says so, and leaves nothing behind."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import kru
from kru.baselines import AntisymmetricRNN
from kru.export import c99, onnx, program
from kru.export.names import as_comment
from kru.lab.cli import main
from kru.matrices import RecurrentMatrix
from kru.nn.model import SequenceModel

from .compiled import WARNINGS, run, tool

FORMATS = [c99, onnx, program]


class Doubled(kru.KRU):
    """A layer that does more than its attributes tell."""

    def forward(self, input, hx=None):
        output, state = super().forward(input, hx)
        return 2 * output, state


class Unknown(RecurrentMatrix):
    """A recurrent matrix without factors."""

    def reset_parameters(self) -> None:
        pass


class Nested(Unknown):
    """A recurrent matrix that is more than a sum of products."""

    def factors(self):
        return [torch.zeros(2, 3, 4, 4)]


def with_matrix(kind: type[RecurrentMatrix]) -> kru.KRU:
    layer = kru.KRU(2, 4, field="real")
    layer.recurrent_l0 = kind(((4, 4),), field="real", gates=1, constraint="none")
    return layer


def not_finite() -> kru.KRU:
    layer = kru.KRU(2, 4)
    layer.weight_ih_l0.data[1, 0] = torch.nan
    return layer


CASES = {
    "no recurrent layer": (
        lambda: nn.Linear(2, 3),
        TypeError,
        "model: Linear has .*; can export an embedding",
    ),
    "a part": (
        lambda: nn.Sequential(nn.Conv1d(2, 2, 1), kru.KRU(2, 4)),
        TypeError,
        r"Sequential has Conv1d \(0\) of the input; can export",
    ),
    "another cell": (lambda: AntisymmetricRNN(2, 4), TypeError, "cell: can export .*, got 'antisymmetric'"),
    "a layer that does more": (lambda: Doubled(2, 4), TypeError, "Doubled computes something that can't be"),
    "no factors": (lambda: with_matrix(Unknown), TypeError, "expected Kronecker factors, got Unknown"),
    "sums of sums": (lambda: with_matrix(Nested), TypeError, "a sum of Kronecker products, got Nested"),
    "not finite": (not_finite, ValueError, "weight_ih_l0: expected finite numbers, got 1 others"),
    "a path": (lambda: "model.safetensors", TypeError, "model: expected a torch.nn.Module, got str"),
}


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("case", list(CASES))
def test_models(case: str, write, tmp_path) -> None:
    make, kind, message = CASES[case]
    with pytest.raises(kind, match=message) as caught:
        write(make(), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding": nn.Embedding(5, 3)}, "embedding: expected input_size=2 columns, got 3"),
        ({"output": nn.Linear(3, 2)}, "output: expected output_size=8 inputs, got 3"),
        ({"embedding": nn.Linear(5, 2)}, "embedding: expected torch.nn.Embedding, got Linear"),
        ({"output": kru.KroneckerLinear(8, 4)}, "output: expected torch.nn.Linear, got KroneckerLinear"),
    ],
)
def test_maps(arguments, message: str, tmp_path) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        c99(kru.KRU(2, 4), tmp_path / "out", **arguments)


def test_a_model_has_its_own_maps(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"output: expected none for a model.*; pass its layer"):
        c99(SequenceModel(kru.KRU(2, 4), 3, readout="last"), tmp_path / "out", output=nn.Linear(8, 3))


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("what", ["folder", "file", "dangling link"])
def test_what_is_there_stays(write, what: str, tmp_path) -> None:
    place = tmp_path / "out"
    if what == "folder":
        place.mkdir()
    elif what == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="out: exists; expected the name of a new folder"):
        write(kru.KRU(2, 4), place)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize(
    "name",
    [
        "",
        "2d",
        "a-b",
        "a b",
        "../up",
        "x;}",
        "a\nb",
        "é",
        "_x",
        "math",
        "STDIO",
        "a" * 25,
        "x/*",
        'q"',
        "a\\",
    ],
)
def test_names(write, name: str, tmp_path) -> None:
    with pytest.raises(ValueError, match="name: expected"):
        write(kru.KRU(2, 4), tmp_path / "out", name=name)


EVIL = 'x */ #error injected\n#include "/etc/passwd" ??/ \\ /* é \u2028 %s'


def weights_named(name: str, path: Path) -> Path:
    model = SequenceModel(kru.KRU(1, 4), 10, readout="last")
    contents = {"recipe": {"task": {"name": "mnist"}, "model": {"hidden_size": 4}}, "name": name}
    save_file(model.state_dict(), path, {"format": "kru 1", "kru": json.dumps(contents)})
    return path


def test_a_recipe_name_cannot_leave_its_comment(tmp_path, capsys) -> None:
    """The names in a weights file are anybody's: none of their characters may mean anything in C."""
    path = weights_named(EVIL, tmp_path / "refused.safetensors")
    assert main(["export", str(path), "--to", "c99", "-o", str(tmp_path / "c")]) == 2
    assert "name: expected one that a folder can have" in capsys.readouterr().err
    path = weights_named('x #error injected ??= ??) \\ " * é %s \\', tmp_path / "evil.safetensors")
    assert main(["export", str(path), "--to", "c99", "-o", str(tmp_path / "c")]) == 0
    header, source = tmp_path / "c" / "model.h", tmp_path / "c" / "model.c"
    assert "injected" in header.read_text().splitlines()[0]
    assert source.read_text().count("#") == 2
    run(tool("gcc"), *WARNINGS, "-Wtrigraphs", "-fsyntax-only", source)
    assert not re.search(r"[^A-Za-z0-9 ._+-]", as_comment(EVIL))
    assert main(["export", str(path), "--to", "onnx", "-o", str(tmp_path / "o")]) == 0


def test_an_origin_cannot_leave_its_comment(tmp_path) -> None:
    _, source = c99(kru.KRU(2, 4), tmp_path / "c", origin=EVIL).files
    assert source.read_text().count("#") == 2
    run(tool("gcc"), *WARNINGS, "-Wtrigraphs", "-fsyntax-only", source)


def test_a_failure_leaves_nothing(tmp_path, monkeypatch) -> None:
    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr("kru.export.torch_program._save", fail)
    with pytest.raises(OSError, match="disk full"):
        program(kru.KRU(2, 4), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_without_onnx(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    for module in ("graph", "cells", "model"):
        monkeypatch.delitem(sys.modules, f"kru.export.onnx_{module}", raising=False)
    with pytest.raises(RuntimeError, match=r"onnx: not installed; pip install 'kru\[export\]'"):
        onnx(kru.KRU(2, 4), tmp_path / "out")
