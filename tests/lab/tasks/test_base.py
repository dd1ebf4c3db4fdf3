"""What holds for every task: batches are pure functions of their index, and fit the attributes."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kru.lab.tasks import Adding, Batch, CopyMemory, Measure, Mnist, Music, PennTreebank, Score, Task, Timit
from kru.lab.tasks.speech_corpus import generate
from kru.training.distributed import Processes

NAMES = ("copy", "adding", "mnist", "pmnist", "rows", "ptb", "jsb", "timit", "timit-folded")


@pytest.fixture(params=NAMES)
def load(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Task]:
    def directory(name: str) -> Path:
        found: Path = request.getfixturevalue(f"{name}_directory")
        return found

    match request.param:
        case "copy":
            return lambda: CopyMemory(15).load()
        case "adding":
            return lambda: Adding(15).load()
        case "mnist" | "pmnist" | "rows":
            order = {"mnist": "plain", "pmnist": "permuted", "rows": "rows"}[request.param]
            place = directory("mnist")
            return lambda: Mnist(order).load(place)  # type: ignore[arg-type]
        case "ptb":
            place = directory("ptb")
            return lambda: PennTreebank().load(place)
        case "jsb":
            place = directory("music")
            return lambda: Music("jsb").load(place)
        case _:
            corpus = tmp_path_factory.mktemp("timit") / "corpus"
            generate(corpus, speakers=4, sentences=2, engine="signals")
            folded = request.param == "timit-folded"
            return lambda: Timit(str(corpus), folded=folded).load()


def same(one: Batch, other: Batch) -> bool:
    return (
        torch.equal(one.inputs, other.inputs)
        and torch.equal(one.targets, other.targets)
        and one.carry == other.carry
        and (one.lengths is other.lengths is None or torch.equal(one.lengths, other.lengths))  # type: ignore[arg-type]
    )


def test_batches_by_index(load: Callable[[], Task]) -> None:
    """A fresh process that starts at any batch of any epoch sees what an undisturbed one saw."""
    task = load()
    torch.manual_seed(0)
    batches = task.train_batches(3, epoch=2, seed=7)
    count = min(len(batches), 50)
    seen = [batch for batch, _ in zip(batches, range(count), strict=False)]
    torch.manual_seed(1)
    fresh = load().train_batches(3, epoch=2, seed=7)
    for index in (count - 1, 0, count // 2):
        assert same(fresh[index], seen[index])
    with pytest.raises(IndexError, match=f"index: expected 0 to {len(fresh) - 1}, got {len(fresh)}"):
        fresh[len(fresh)]


def test_epochs_and_seeds_shuffle(load: Callable[[], Task]) -> None:
    task = load()
    first = task.train_batches(2, epoch=0, seed=0)[0]
    others = [task.train_batches(2, epoch=e, seed=s)[0] for e, s in ((1, 0), (2, 0), (0, 1), (0, 2))]
    assert all(same(first, other) for other in others) == task.carries_state
    if not task.carries_state:
        with pytest.raises(ValueError, match="epoch: expected at least 0, got -1"):
            task.train_batches(2, epoch=-1, seed=0)
        with pytest.raises(ValueError, match="seed: expected at least 0, got -3"):
            task.train_batches(2, epoch=0, seed=-3)
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        task.train_batches(0, epoch=0, seed=0)


def test_shapes_loss_and_score(load: Callable[[], Task]) -> None:
    task = load()
    assert math.isfinite(task.baseline)
    for split in ("train", "valid", "test"):
        batch = task.eval_batches(split, 3)[0]  # type: ignore[arg-type]
        steps, size = batch.inputs.shape[:2]
        if task.symbols:
            assert batch.inputs.dtype == torch.int64
            assert batch.inputs.dim() == 2
            assert batch.inputs.max() < task.input_size
        else:
            assert batch.inputs.dtype == torch.float32
            assert batch.inputs.shape == (steps, size, task.input_size)
        if batch.lengths is not None:
            assert batch.lengths.shape == (size,)
            assert batch.lengths.max() == steps
        shape = (size,) if task.last_only else (steps, size)
        outputs = torch.randn(*shape, task.output_size, requires_grad=True)
        loss = task.loss(outputs, batch)
        assert loss.shape == ()
        loss.backward()
        assert outputs.grad is not None
        assert outputs.grad.isfinite().all()
        score = task.score(outputs.detach(), batch)
        assert score.count > 0
        assert math.isfinite(score.value)
        assert batch.to("cpu").targets is not None


def test_measure_does_not_depend_on_the_batch_size(load: Callable[[], Task]) -> None:
    task = load()
    torch.manual_seed(0)
    table = torch.randn(task.input_size, task.output_size)
    values = []
    for batch_size in (1, 4, 1000) if task.size("test") < 5000 else (100, 1000):
        score = Score()
        for batch in task.eval_batches("test", min(batch_size, task.size("test"))):
            outputs = table[batch.inputs] if task.symbols else batch.inputs @ table
            score += task.score(outputs[-1] if task.last_only else outputs, batch)
        values.append((score.count, score.value))
    for count, value in values:
        assert count == values[0][0]
        assert value == pytest.approx(values[0][1], rel=1e-5)


def test_score_and_measure() -> None:
    assert (Score(3.0, 2) + Score(1.0, 2)).value == 1.0
    assert math.isnan(Score().value)
    error, accuracy = Measure("error", lower_is_better=True), Measure("accuracy", lower_is_better=False)
    assert error.improves(1.0, 2.0)
    assert not accuracy.improves(1.0, 2.0)
    for measure in (error, accuracy):
        assert not measure.improves(math.nan, 1.0)
        assert not measure.improves(1.0, 1.0)


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_parts_of_a_batch_add_up_to_its_loss(load: Callable[[], Task], processes: int) -> None:
    """n L = sum_r n_r L_r, gradients of the outputs alike: what processes that share a batch rely on."""
    task = load()
    torch.manual_seed(0)
    batch = task.train_batches(5, epoch=0, seed=1)[0]
    shape = batch.inputs.shape[1:2] if task.last_only else batch.inputs.shape[:2]
    outputs = torch.randn(*shape, task.output_size, requires_grad=True)
    whole = task.loss(outputs, batch)
    (expected,) = torch.autograd.grad(whole, outputs)
    assert task.count(batch) == task.score(outputs, batch).count
    total = torch.zeros(())
    counted, columns = 0, 0
    for rank in range(processes):
        part, weight = Processes(rank, processes).share(batch, task)
        if part is None:
            assert weight == 0
            continue
        width = part.inputs.shape[1]
        mine = outputs[columns : columns + width]
        if not task.last_only:
            mine = outputs[: part.inputs.shape[0], columns : columns + width]
        total = total + weight * task.loss(mine, part)
        counted += task.count(part)
        columns += width
    assert columns == batch.inputs.shape[1]
    assert counted == task.count(batch)
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(torch.autograd.grad(total, outputs)[0], expected)
