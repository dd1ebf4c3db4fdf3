import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kru.lab.cli import main
from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.result import read_result
from kru.lab.tasks import Measure
from kru.lab.trainer import RecipeTrainer, recipe_in
from kru.matrices import kronecker_matrix
from kru.training.checkpoint import Checkpoint, Progress
from kru.training.growth import next_step, stalled
from kru.training.interrupt import Interrupted
from kru.training.metrics import read_metrics
from kru.training.settings import GrowthSettings

GROWTH = (
    "--growth.max-parameters",
    "200",
    "--growth.patience",
    "0",
    "--growth.gain",
    "0.5",
    "--growth.factor",
    "1",
)


def merged_sizes(sizes, config, **options):
    """The factors after each step of growth, until there is none."""
    matrix = kronecker_matrix(
        torch.tensor(sizes).prod().item(), sizes, field=options.pop("field", "real"), **options
    )
    steps = []
    while step := next_step(config, matrix):
        for i in step.merges:
            matrix.merge_factors(i)
        steps.append([rows for rows, _ in matrix.shapes])
    return steps


def test_factors_grow_evenly_within_the_budget():
    sizes = [2] * 6
    one_by_one = GrowthSettings(10**6, factor=1.0)
    assert merged_sizes(sizes, one_by_one) == [
        [4, 2, 2, 2, 2],
        [4, 4, 2, 2],
        [4, 4, 4],
        [16, 4],
        [64],
    ]
    assert merged_sizes(sizes, GrowthSettings(300, factor=1.0))[-1] == [16, 4]
    assert merged_sizes(sizes, GrowthSettings(271, factor=1.0))[-1] == [4, 4, 4]
    assert merged_sizes(sizes, GrowthSettings(10**6, factor=2.0)) == [[4, 4, 4], [16, 4], [64]]
    assert merged_sizes(sizes, GrowthSettings(10**6, factor=1e9)) == [[64]]


def test_all_parameters_of_a_matrix_count():
    sizes = [2] * 4
    assert merged_sizes(sizes, GrowthSettings(64, factor=1.0), field="complex")[-1] == [4, 4]
    assert merged_sizes(sizes, GrowthSettings(63, factor=1.0), field="complex")[-1] == [4, 2, 2]
    assert merged_sizes(sizes, GrowthSettings(128, factor=1.0), gates=4)[-1] == [4, 4]
    # An orthogonal matrix of size 4 has six dimensions.
    assert merged_sizes(sizes, GrowthSettings(12, factor=1.0), constraint="exact")[-1] == [4, 4]


def test_terms_within_the_budget():
    matrix = kronecker_matrix(6, [2, 3], field="real")
    ranks = []
    while step := next_step(GrowthSettings(13 * 7, by="rank"), matrix):
        matrix.add_terms(step.terms)
        ranks.append(matrix.rank)
    assert ranks == [2, 4, 7]
    assert next_step(GrowthSettings(13 * 9, by="rank", factor=1.0), matrix).terms == 1


@pytest.mark.parametrize("lower", [True, False])
def test_when_it_stalls(lower):
    config, measure, progress = GrowthSettings(1, patience=1, gain=0.1), Measure("m", lower), Progress()
    sign = 1 if lower else -1
    # 9.5 is not a tenth better than 10, 8.9 is; growth begins a new count.
    values = [10, 9.5, 8.9, 9, 8.8, 8.8, 8.8, 7, 7]
    expected = [False, False, False, False, True, False, True, False, False]
    assert [stalled(config, measure, progress, sign * value) for value in values] == expected


def growing(tiny, by="merge", **model):
    recipe = load_recipe(tiny)
    return replace(
        recipe,
        growth=GrowthSettings(10**4 if by == "merge" else 180, by, patience=0, gain=0.5, factor=1.0),
        model=recipe.model.changed(**model),
        optimizer=replace(recipe.optimizer, name="adam" if model else "rmsprop"),
    )


def interrupt_at(step, trainer):
    def check():
        if trainer.progress.step == step:
            raise Interrupted(2)

    return check


@pytest.mark.parametrize(
    "model", [{}, {"kind": "kru-lstm"}, {"kind": "kru-gru"}, {"constraint": "exact"}, {"field": "real"}]
)
@pytest.mark.parametrize(("step", "factors"), [(14, 3), (16, 2), (29, 1)])
def test_an_interrupted_run_goes_on_exactly(model, step, factors, tiny, tmp_path):
    recipe = growing(tiny, **model)
    task = recipe.task.load()
    whole = RecipeTrainer(recipe, task, folder=tmp_path / "whole")
    whole.train()
    assert len(whole.model.layer.matrix().shapes) == 1
    first = RecipeTrainer(recipe, task, folder=tmp_path / "cut")
    first.check = interrupt_at(step, first)
    with pytest.raises(Interrupted):
        first.train()
    second = RecipeTrainer(recipe, task, folder=tmp_path / "cut")
    checkpoint = Checkpoint.load(tmp_path / "cut" / "checkpoint.safetensors")
    second.restore(checkpoint)
    assert len(second.model.layer.matrix().shapes) == factors
    second.train()
    for weights, others in (
        (whole.model.state_dict(), second.model.state_dict()),
        (whole.best_weights, second.best_weights),
    ):
        assert weights.keys() == others.keys()
        assert all(torch.equal(weights[name], others[name]) for name in weights)
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")]
    for line in (*lines[0], *lines[1]):
        del line["seconds"]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("model", [{}, {"kind": "kru-lstm"}, {"field": "real"}])
@pytest.mark.parametrize(("step", "rank"), [(14, 1), (16, 2), (29, 4)])
def test_a_run_that_grows_by_rank_goes_on_exactly(model, step, rank, tiny, tmp_path):
    recipe = growing(tiny, "rank", **model)
    task = recipe.task.load()
    whole = RecipeTrainer(recipe, task)
    whole.train()
    assert whole.model.layer.matrix().rank > 2
    first = RecipeTrainer(recipe, task, folder=tmp_path)
    first.check = interrupt_at(step, first)
    with pytest.raises(Interrupted):
        first.train()
    second = RecipeTrainer(recipe, task, folder=tmp_path)
    second.restore(Checkpoint.load(tmp_path / "checkpoint.safetensors"))
    # One term of the LSTM has 48 parameters, and 180 are allowed.
    assert second.model.layer.matrix().rank == min(rank, 3 if "kind" in model else 4)
    second.train()
    weights, others = whole.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_a_run_killed_at_random_moments_ends_with_the_same_weights(tiny, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    long = (*GROWTH, "--steps", "240", "--evaluation.every", "60", "--quiet", "--checkpoint-seconds", "0")
    assert main(["train", tiny, *long, "--out", str(whole)]) == 0
    script = Path(__file__).with_name("kill_repeatedly.py")
    done = subprocess.run(
        [sys.executable, str(script), "4", "1", "train", tiny, *long, "--out", str(cut)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        expected, got = load_file(whole / name), load_file(cut / name)
        assert expected.keys() == got.keys()
        assert all((expected[key] == got[key]).all() for key in expected)
    first, second = (read_result(folder / "result.json") for folder in (whole, cut))
    assert len(first["growth"]) == 2
    assert [point["factors"] for point in first["growth"]] == [[4, 2], [8]]
    assert [first[key] for key in ("test", "parameters")] == [second[key] for key in ("test", "parameters")]


def test_validation_does_not_jump_where_a_model_grows(tiny):
    """Growth right after a validation: the next one, with rates that change nothing, gives the same value."""
    recipe = growing(tiny)
    still = replace(recipe, optimizer=replace(recipe.optimizer, lr=1e-30))
    values, sizes = [], []

    def report(event):
        if event.valid is not None:
            values.append(event.valid)
        if event.grown is not None:
            sizes.append(event.grown.factors)

    RecipeTrainer(still, still.task.load(), report=report).train()
    assert sizes == [(4, 2), (8,)]
    assert values == pytest.approx([values[0]] * len(values), rel=1e-6)


def test_rates_and_stopping_wait_until_it_is_grown(tiny):
    recipe = growing(tiny)
    still = replace(
        recipe,
        steps=0,
        epochs=1,
        optimizer=replace(recipe.optimizer, lr=1e-30),
        schedule=replace(recipe.schedule, factor=0.5, patience=1, stop_after=4),
    )
    trainer = RecipeTrainer(still, still.task.load())
    assert trainer.train() == "early"
    # Two steps of growth, at the second and third validation, then four without improvement.
    assert trainer.progress.step == 7 * (3 + 4)
    assert trainer.progress.rate == 0.25


def test_weights_of_a_grown_model_can_be_read(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", tiny, *GROWTH, "--steps", "120", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "tiny: grown to 4 ⊗ 2, 40 recurrent parameters, penalty " in shown.err
    result = read_result(out / "result.json")
    assert result["growth"][-1]["factors"] == [8]
    assert result["growth"][-1]["penalty"] > result["growth"][0]["penalty_before"]
    assert result["parameters"]["recurrent"] == 128
    assert main(["evaluate", str(out)]) == 0
    assert f"cross entropy {result['test']:.6g} on test" in capsys.readouterr().out
    assert main(["inspect", str(out)]) == 0
    assert "8x8" in capsys.readouterr().out
    (out / "weights.safetensors").unlink()
    assert main(["inspect", str(out)]) == 0
    assert "8x8" in capsys.readouterr().out
    # The recipe of the run stays as it was: the same command prolongs it.
    assert main(["train", tiny, *GROWTH, "--steps", "130", "--quiet", "--out", str(out), "--resume"]) == 0


def test_the_best_model_may_be_the_one_before(tiny, tmp_path):
    recipe = growing(tiny)
    still = with_budget(replace(recipe, optimizer=replace(recipe.optimizer, lr=1e-30)), steps=28)
    trainer = RecipeTrainer(still, still.task.load(), source=tiny, folder=tmp_path)
    trainer.train()
    assert len(trainer.model.layer.matrix().shapes) == 1
    assert {name for name in trainer.best_weights if "factor" in name} == {
        f"layer.recurrent_l0.factor_{f}" for f in range(3)
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--model.factors", "8"), "growth: expected a model with two Kronecker factors at least"),
        (("--model.kind", "lstm"), "got 8x8; choose model.kind kru"),
        (("--growth.max-parameters", "39"), "growth.max-parameters: expected at least the 40 recurrent"),
        (("--growth.by", "rank", "--growth.max-parameters", "47"), "expected at least the 48 recurrent"),
        (("--growth.by", "rank", "--model.constraint", "exact"), "a sum of unitary matrices is not unitary"),
        (("--growth.gain", "1.5"), "growth.gain: expected from 0 to below 1, got 1.5"),
    ],
)
def test_growth_that_cannot_happen_is_refused(options, complaint, tiny, tmp_path, capsys):
    assert main(["train", tiny, *GROWTH, *options, "--out", str(tmp_path / "run")]) == 2
    assert complaint in capsys.readouterr().err


def test_a_checkpoint_from_before_there_was_growth_is_read(tiny, tmp_path):
    recipe = with_budget(load_recipe(tiny), steps=2)
    RecipeTrainer(recipe, recipe.task.load(), folder=tmp_path).train()
    path = tmp_path / "checkpoint.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    contents = json.loads(header["__metadata__"]["kru"])
    for name in ("growth_best", "growth_stale"):
        del contents["progress"][name]
    # An older version wrote the recipe beside the progress, and no settings of the model.
    contents |= contents.pop("origin")
    del contents["recipe"]["growth"], contents["model"], contents["best_model"]
    header["__metadata__"] = {"format": "kru 1", "kru": json.dumps(contents)}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    checkpoint = Checkpoint.load(path)
    assert checkpoint.progress.growth_stale == 0
    assert recipe_in(checkpoint.origin) == recipe
