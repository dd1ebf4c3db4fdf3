"""kru compress: a run's recurrent matrices replaced, evaluated and fine-tuned."""

import json
from dataclasses import replace

import pytest
import torch

from kru.lab.cli import main
from kru.lab.compressed import compress_run, fine_tuning
from kru.lab.recipes.files import load_recipe
from kru.lab.result import read_result, read_weights
from kru.training.checkpoint import read_tensors, write_tensors
from kru.training.folder import WEIGHTS

SMALL = ["--steps", "20", "--quiet"]


@pytest.fixture
def dense(tiny, tmp_path):
    """The folder of a run of an LSTM with 12 units."""
    folder = tmp_path / "dense"
    arguments = ["--model.kind", "lstm", "--model.hidden-size", "12", "--penalty", "0", "--out", str(folder)]
    assert main(["train", tiny, *SMALL, *arguments]) == 0
    return folder


def test_compressed_weights_are_a_model_of_their_own(dense, tmp_path, capsys):
    out = tmp_path / "small"
    assert main(["compress", str(dense), "--max-parameters", "250", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "layer.recurrent_l0.i: 12x12 -> " in printed
    assert "before: cross entropy" in printed
    recipe, model = read_weights(out / WEIGHTS)
    assert recipe.name == "tiny-compressed"
    assert recipe.model.kind == "kru-lstm"
    count = sum(p.numel() for p in model.layer.matrix().parameters())
    assert count <= 250
    assert main(["evaluate", str(out)]) == 0
    shown = float(capsys.readouterr().out.split("cross entropy ")[1].split()[0])
    measured = float(printed.split("compressed: cross entropy ")[1].split()[0])
    assert shown == pytest.approx(measured, rel=1e-4)


def test_trained_further_and_gone_on_with(dense, tmp_path, capsys):
    out = tmp_path / "small"
    arguments = ["compress", str(dense), "--factors", "3", "4", "--rank", "2", "--fine-tune", "--steps", "9"]
    arguments += ["--out", str(out), "--quiet"]
    assert main(arguments) == 0
    assert "fine-tuned: tiny-compressed seed 3" in capsys.readouterr().out
    result = read_result(out / "result.json")
    assert result["steps"] == 9
    assert result["command"] == f"kru {' '.join(arguments)}"
    assert result["parameters"]["recurrent"] == 2 * 4 * (9 + 16)
    assert main(arguments) == 0  # it is done: nothing is trained twice
    assert read_result(out / "result.json") == result
    again, model = read_weights(out / WEIGHTS)
    assert (again.model.factors, again.model.rank, again.model.constraint) == ((3, 4), 2, "none")
    assert json.loads(json.dumps(result["parameters"]))["total"] == sum(p.numel() for p in model.parameters())


def test_trained_further_where_the_compressed_weights_are(dense, tmp_path, capsys):
    """These are of the same command; weights of anything else are not replaced."""
    out = tmp_path / "small"
    arguments = ["compress", str(dense), "--factors", "3", "4", "--out", str(out), "--quiet"]
    further = [*arguments, "--fine-tune", "--steps", "2"]
    out.mkdir()
    other = (dense / WEIGHTS).read_bytes()
    (out / WEIGHTS).write_bytes(other)
    assert main(further) == 2
    assert f"{out}: has {WEIGHTS} but no checkpoint.safetensors" in capsys.readouterr().err
    assert (out / WEIGHTS).read_bytes() == other
    assert main(arguments) == 0
    assert main(further) == 0
    assert read_result(out / "result.json")["steps"] == 2


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "kru", "kru-gru"])
def test_every_kind_with_all_terms_is_the_same_model(kind, tiny, tmp_path):
    folder = tmp_path / "dense"
    options = ["--model.kind", kind, "--model.hidden-size", "12", "--out", str(folder)]
    assert main(["train", tiny, *SMALL, *options]) == 0
    recipe, model = read_weights(folder / WEIGHTS)
    task = recipe.task.load(None)
    batch = task.eval_batches("test", 10)[0]
    for factors, rank in (([4, 3], 9), ([(12, 1), (1, 12)], 12)):
        done = compress_run(recipe, model, task, factors=factors, rank=rank, batches=0)
        assert done.recipe.model.low_rank == isinstance(factors[0], tuple)
        torch.testing.assert_close(done.model(batch.inputs)[0], model(batch.inputs)[0], rtol=1e-3, atol=1e-4)


def test_a_grown_model_does_not_grow_again(tiny, tmp_path, capsys):
    folder, out = tmp_path / "grown", tmp_path / "small"
    growth = ["--growth.max-parameters", "200", "--growth.patience", "0", "--growth.gain", "0.5"]
    assert main(["train", tiny, "--steps", "60", "--quiet", *growth, "--out", str(folder)]) == 0
    assert read_result(folder / "result.json")["growth"]
    # Of 8 x 8, the split with the fewest parameters is a column times a row: 16, all complex.
    low_rank = ["--max-parameters", "32", "--fine-tune", "--steps", "20", "--quiet", "--out", str(out)]
    assert main(["compress", str(folder), *low_rank]) == 0
    assert read_result(out / "result.json")["parameters"]["recurrent"] == 32
    recipe, _ = read_weights(out / WEIGHTS)
    assert recipe.growth.max_parameters == 0
    assert main(["evaluate", str(out)]) == 0


def test_states_that_occur(dense):
    recipe, model = read_weights(dense / WEIGHTS)
    task = recipe.task.load(None)
    plain, fitted = (
        compress_run(recipe, model, task, factors=[3, 4], batches=batches).model for batches in (0, 5)
    )
    inputs = task.eval_batches("test", 100)[0].inputs
    wanted = model(inputs)[0]
    off = [(small(inputs)[0] - wanted).norm() for small in (plain, fitted)]
    assert off[1] < off[0]


def test_rates_of_further_training() -> None:
    recipe = fine_tuning(load_recipe("jsb-lstm"), 0.25, epochs=7)
    assert recipe.epochs == 7
    assert recipe.optimizer.lr == pytest.approx(load_recipe("jsb-lstm").optimizer.lr / 4)
    assert recipe.schedule.shape == "cosine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "max-parameters, factors: expected one of them, got neither"),
        (["--max-parameters", "250", "--factors", "3", "4"], "expected one of them, got both"),
        (["--max-parameters", "5"], "max_parameters: expected at least"),
        (["--factors", "5", "5"], "factors: expected rows whose product"),
        (["--factors", "3", "4", "--batches", "-1"], "batches: expected at least 0, got -1"),
        (["--factors", "3", "4", "--epochs", "0"], "epochs: expected at least 1, got 0"),
        (["--factors", "3", "4", "--rate", "0"], "rate: expected above 0, got 0.0"),
    ],
)
def test_bad_input(arguments, message, dense, capsys):
    capsys.readouterr()
    assert main(["compress", str(dense), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_no_weights_are_replaced_but_compressed_ones(dense, tmp_path, capsys):
    def complaint(run, out):
        capsys.readouterr()
        assert main(["compress", str(run), "--factors", "3", "4", "--out", str(out)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    weights = dense / WEIGHTS
    before = weights.read_bytes()
    assert "out: expected a folder other than the folder of the weights to compress" in complaint(
        dense, dense
    )
    elsewhere = tmp_path / "elsewhere" / WEIGHTS
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(before)
    assert f"out: expected a folder without a run, got {dense}" in complaint(elsewhere, dense)
    assert f"{weights}: expected a folder to write to (Not a directory)" in complaint(elsewhere, weights)
    assert weights.read_bytes() == before
    header, tensors = read_tensors(weights)
    write_tensors(elsewhere, {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, header)
    assert "data: expected inputs on which some states are not 0" in complaint(elsewhere, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_other_layers_are_not_compressed(tiny, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", tiny, *SMALL, "--model.kind", "eurnn", "--out", str(folder)]) == 0
    capsys.readouterr()
    assert main(["compress", str(folder), "--max-parameters", "100"]) == 2
    assert "model.kind: expected one of rnn, lstm, gru, kru, kru-lstm, kru-gru" in capsys.readouterr().err


def test_low_rank_has_no_factors() -> None:
    model = load_recipe("jsb-kru").model
    with pytest.raises(ValueError, match=r"model\.factors: expected none with model\.low-rank"):
        replace(model, low_rank=True, factors=(6, 6))
