import math
from dataclasses import replace

import pytest
import torch

import kru
from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.tasks import PennTreebank
from kru.lab.tasks.penn_treebank import PennTreebankTask
from kru.lab.trainer import RecipeTrainer
from kru.nn.kinds import model_settings
from kru.nn.model import Sizes, seeded_model
from kru.training.checkpoint import Checkpoint
from kru.training.interrupt import Interrupted
from kru.training.metrics import read_metrics
from kru.training.trainer import DivergedError


def interrupt_at(call):
    """A `check` that stops the loop at its n-th call."""
    calls = iter(range(1, 10**9))

    def check():
        if next(calls) == call:
            raise Interrupted(2)

    return check


def text_task():
    text = "the cat sat on the mat\nand the dog ran after it\n" * 12
    return PennTreebankTask(PennTreebank(bptt=5), {"train": text, "valid": text[:120], "test": text[:90]})


def case(kind, tiny):
    recipe = load_recipe(tiny)
    if kind == "copy":
        return recipe, recipe.task.load()
    own = {"field": "real"} if kind == "kru" else {}
    model = recipe.model.changed(kind, hidden_size=6, dropout=0.2, **own)
    evaluation = replace(recipe.evaluation, batch_size=3, sequences=0)
    adam = replace(recipe.optimizer, name="adam")
    recipe = with_budget(
        replace(recipe, task=PennTreebank(5), model=model, evaluation=evaluation, optimizer=adam), epochs=2
    )
    return recipe, text_task()


@pytest.mark.parametrize("kind", ["copy", "kru", "kru-lstm", "gru", "fc-urnn", "rc-urnn", "antisymmetric"])
@pytest.mark.parametrize("call", [1, 13, 29, 47])
def test_an_interrupted_run_goes_on_exactly(kind, call, tiny, tmp_path):
    recipe, task = case(kind, tiny)
    whole = RecipeTrainer(recipe, task, folder=tmp_path / "whole")
    assert whole.train() == "budget"
    first = RecipeTrainer(recipe, task, folder=tmp_path / "cut", check=interrupt_at(call))
    with pytest.raises(Interrupted):
        first.train()
    second = RecipeTrainer(recipe, task, folder=tmp_path / "cut")
    second.restore(Checkpoint.load(tmp_path / "cut" / "checkpoint.safetensors"))
    assert second.train() == "budget"
    for weights, others in (
        (whole.model.state_dict(), second.model.state_dict()),
        (whole.best_weights, second.best_weights),
    ):
        assert all(torch.equal(weights[name], others[name]) for name in weights)
    same = ("step", "epoch", "index", "best", "best_step", "stale", "rate", "loss_sum")
    assert all(getattr(whole.progress, name) == getattr(second.progress, name) for name in same)
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")]
    assert [without_time(line) for line in lines[0]] == [without_time(line) for line in lines[1]]


def _pair(state):
    return state if isinstance(state, tuple) else (state, state)


@pytest.mark.parametrize("kind", ["kru", "kru-lstm"])
@pytest.mark.parametrize(
    "change",
    [
        lambda state: None,
        lambda state: _pair(state)[0] if isinstance(state, tuple) else _pair(state),
        lambda state: (
            tuple(part[:, :1] for part in _pair(state)) if isinstance(state, tuple) else state[:, :1]
        ),
        lambda state: tuple(part.double() for part in state) if isinstance(state, tuple) else state.double(),
    ],
)
def test_a_checkpoint_of_text_without_its_carried_state_is_refused(kind, change, tiny):
    recipe, task = case(kind, tiny)
    trainer = RecipeTrainer(recipe, task, check=interrupt_at(5))
    with pytest.raises(Interrupted):
        trainer.train()
    checkpoint = trainer.checkpoint()
    RecipeTrainer(recipe, task).restore(checkpoint)
    with pytest.raises(ValueError, match=r"^carried"):
        RecipeTrainer(recipe, task).restore(replace(checkpoint, carried=change(checkpoint.carried)))


def without_time(line):
    return {key: value for key, value in line.items() if key != "seconds"}


def test_lines_written_after_the_checkpoint_are_cut_off(tiny, tmp_path):
    recipe, task = case("copy", tiny)
    RecipeTrainer(with_budget(recipe, steps=20), task, folder=tmp_path).train()
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with open(tmp_path / "metrics.jsonl", "ab") as stream:
        stream.write(b'{"step": 21, "lo')
    later = RecipeTrainer(with_budget(recipe, steps=40), task, folder=tmp_path)
    later.restore(Checkpoint.load(tmp_path / "checkpoint.safetensors"))
    later.train()
    after = (tmp_path / "metrics.jsonl").read_bytes()
    assert after.startswith(before)
    assert b'"lo{' not in after
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == after.count(b"\n")


def test_training_lowers_the_loss(tiny):
    recipe, task = case("copy", tiny)
    values = []
    trainer = RecipeTrainer(
        with_budget(recipe, steps=120), task, report=lambda event: values.append(event.loss or math.inf)
    )
    trainer.train()
    assert values[0] > 1.5
    assert min(values[-10:]) < 1.3


def test_rates_fall_and_training_stops_when_validation_stalls(tiny):
    recipe, task = case("copy", tiny)
    # A rate at which nothing changes in single precision: the first validation is the best.
    still = replace(
        recipe,
        optimizer=replace(recipe.optimizer, lr=1e-30),
        schedule=replace(recipe.schedule, factor=0.5, patience=1, stop_after=4),
    )
    trainer = RecipeTrainer(still, task)
    assert trainer.train() == "early"
    assert trainer.progress.step == 5 * 7
    assert trainer.progress.rate == 0.25
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5e-30  # of the last step, before the last validation


def test_cosine_takes_the_rates_to_nothing_over_the_budget(tiny):
    recipe, task = case("copy", tiny)
    cosine = replace(recipe, schedule=replace(recipe.schedule, shape="cosine", factor=1.0), steps=40)
    rates = []
    trainer = RecipeTrainer(
        cosine, task, report=lambda _: rates.append(trainer.optimizer.param_groups[0]["lr"])
    )
    trainer.train()
    steps = sorted(set(rates), reverse=True)
    assert len(steps) == 40
    assert steps[0] == 1e-3
    assert steps[20] == pytest.approx(0.5e-3)
    assert 0 < steps[-1] < 1e-5


def test_recurrent_matrix_has_its_own_rate(tiny):
    recipe, task = case("copy", tiny)
    groups = {group["name"]: group for group in RecipeTrainer(recipe, task).optimizer.param_groups}
    assert groups["recurrent"]["lr"] == pytest.approx(0.1 * groups["other"]["lr"])
    assert groups["other"]["alpha"] == 0.9
    assert "input" not in groups


def test_input_weights_have_a_rate_of_their_own_when_asked(tiny):
    recipe, task = case("copy", tiny)
    recipe = replace(recipe, optimizer=replace(recipe.optimizer, input_scale=3.0))
    groups = {group["name"]: group for group in RecipeTrainer(recipe, task).optimizer.param_groups}
    assert groups["input"]["lr"] == pytest.approx(3 * groups["other"]["lr"])


def test_only_the_first_input_weights_are_scaled():
    sizes = Sizes(3, 2, last_only=True)
    plain = seeded_model(model_settings(hidden_size=4), sizes, 1).state_dict()
    scaled = seeded_model(model_settings(hidden_size=4, input_scale=3.0), sizes, 1).state_dict()
    changed = [name for name in plain if not torch.equal(plain[name], scaled[name])]
    assert changed == ["layer.weight_ih_l0"]
    torch.testing.assert_close(scaled["layer.weight_ih_l0"], 3 * plain["layer.weight_ih_l0"])


@pytest.mark.parametrize("kind", ["kru", "fc-urnn"])
def test_initial_bias_is_that_of_modrelu(kind):
    sizes = Sizes(3, 2, last_only=True)
    plain = seeded_model(model_settings(kind, hidden_size=4), sizes, 1).state_dict()
    biased = seeded_model(model_settings(kind, hidden_size=4, initial_bias=-0.5), sizes, 1).state_dict()
    assert [name for name in plain if not torch.equal(plain[name], biased[name])] == ["layer.bias_l0"]
    assert torch.equal(biased["layer.bias_l0"], torch.full((4,), -0.5))


def test_a_setting_of_another_kind_is_refused():
    with pytest.raises(
        ValueError, match="model\\.initial-bias: does not apply to lstm; expected one of kind, "
    ):
        model_settings("lstm", initial_bias=0.1)
    with pytest.raises(ValueError, match="model\\.recurrent-gain: does not apply to fc-urnn"):
        model_settings("fc-urnn", recurrent_gain=0.5)


def test_initial_bias_without_modrelu_is_refused():
    with pytest.raises(ValueError, match="initial_bias: expected 0"):
        seeded_model(model_settings(nonlinearity="tanh", initial_bias=0.1), Sizes(3, 2, last_only=True), 1)


@pytest.mark.parametrize("kind", ["kru", "kru-lstm", "rnn"])
def test_recurrent_gain_is_that_of_the_whole_matrix(kind):
    sizes = Sizes(3, 2, last_only=True)
    plain = seeded_model(model_settings(kind, hidden_size=12), sizes, 1).layer.matrix()
    scaled = seeded_model(model_settings(kind, hidden_size=12, recurrent_gain=0.5), sizes, 1).layer.matrix()
    dense = [kru.kron_dense(matrix.dense_factors()) for matrix in (plain, scaled)]
    torch.testing.assert_close(dense[1], 0.5 * dense[0])


def test_recurrent_gain_of_exactly_unitary_matrices_is_refused():
    settings = model_settings(constraint="exact", recurrent_gain=0.5)
    with pytest.raises(ValueError, match=r"recurrent_gain: expected 1 .*, got 0\.5"):
        seeded_model(settings, Sizes(3, 2, last_only=True), 1)


def test_dropout_acts_on_the_output_and_only_while_training():
    sizes = Sizes(3, 5, False)
    model = seeded_model(model_settings(hidden_size=4, dropout=0.5), sizes, 1)
    plain = seeded_model(model_settings(hidden_size=4), sizes, 1)
    x = torch.randn(20, 2, 3)
    assert not torch.equal(model(x)[0], plain(x)[0])
    assert torch.equal(model(x)[1], plain(x)[1])
    assert torch.equal(model.eval()(x)[0], plain(x)[0])


def test_divergence_keeps_the_last_checkpoint(tiny, tmp_path):
    recipe, task = case("copy", tiny)
    wild = replace(recipe, optimizer=replace(recipe.optimizer, lr=1e25, recurrent_scale=1.0))
    trainer = RecipeTrainer(wild, task, folder=tmp_path)
    with pytest.raises(DivergedError, match=r"loss is|no longer finite"):
        trainer.train()
    checkpoint = Checkpoint.load(tmp_path / "checkpoint.safetensors")
    assert all(tensor.isfinite().all() for tensor in checkpoint.weights.values())


def test_weights_that_are_not_finite_are_never_written(tiny, tmp_path):
    recipe, task = case("copy", tiny)
    trainer = RecipeTrainer(with_budget(recipe, steps=2), task, folder=tmp_path)
    trainer.train()
    good = (tmp_path / "checkpoint.safetensors").read_bytes()
    again = RecipeTrainer(with_budget(recipe, steps=4), task, folder=tmp_path, checkpoint_seconds=0.0)
    again.restore(Checkpoint.load(tmp_path / "checkpoint.safetensors"))
    with torch.no_grad():
        again.model.output.bias.fill_(math.nan)
    with pytest.raises(DivergedError, match="weights are no longer finite"):
        again.train()
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == good


def test_weights_that_are_not_finite_are_not_measured(tiny):
    """An accuracy of such a model would be a number like any other."""
    recipe, task = case("copy", tiny)
    trainer = RecipeTrainer(with_budget(recipe, steps=7), task)

    def spoil(event):
        if event.progress.step == 7:
            with torch.no_grad():
                trainer.model.layer.matrix().factor_0.fill_(math.nan)

    trainer.report = spoil
    with pytest.raises(DivergedError, match="weights are no longer finite after step 7"):
        trainer.train()


def test_gradients_are_clipped_on_request(tiny):
    recipe, task = case("copy", tiny)
    clipped = replace(recipe, optimizer=replace(recipe.optimizer, clip=1e-4))
    trainer = RecipeTrainer(with_budget(clipped, steps=1), task)
    trainer.train()
    norms = [p.grad.norm() for p in trainer.model.parameters() if p.grad is not None]
    assert torch.stack(norms).norm() <= 1.01e-4
