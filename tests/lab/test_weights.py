"""What `kru evaluate` says of weights that are not those of a trained model."""

import math
import resource

import pytest
import torch

from kru.lab.cli import main
from kru.training.checkpoint import read_tensors, write_tensors


@pytest.fixture
def weights(tiny, tmp_path):
    assert main(["train", tiny, "--quiet", "--out", str(tmp_path / "run"), "--steps", "2"]) == 0
    return tmp_path / "run" / "weights.safetensors"


def complaint(path, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert f"{path}: " in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: torch.full_like(t, math.nan), "expected finite values, got some that are not"),
        (lambda t: t.to(torch.int8), "expected torch.float32, got torch.int8"),
        (lambda t: t.to(torch.bool), "expected torch.float32, got torch.bool"),
        (lambda t: t.to(torch.float64), "expected torch.float32, got torch.float64"),
    ],
)
def test_weights_of_another_kind_are_not_measured(change, message, weights, capsys):
    header, tensors = read_tensors(weights)
    write_tensors(weights, {name: change(tensor) for name, tensor in tensors.items()}, header)
    assert message in complaint(weights, capsys)


def test_a_flipped_bit_is_noticed(weights, capsys):
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "expected contents with the SHA-256 in its header" in complaint(weights, capsys)


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "kru", "hidden_size": 2**24},
        {"kind": "kru", "hidden_size": 8, "factors": [2**24, 2**24]},
        {"kind": "rnn", "hidden_size": 2**20},
        {"kind": "ornn", "hidden_size": 2**20},
        {"kind": "lstm", "hidden_size": 8, "num_layers": 2**24},
    ],
)
def test_a_size_in_the_header_allocates_nothing(model, weights, capsys):
    header, tensors = read_tensors(weights)
    write_tensors(weights, tensors, {**header, "recipe": {**header["recipe"], "model": model}})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    complaint(weights, capsys)
    # In KiB, on Linux.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
