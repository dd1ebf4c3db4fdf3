import time

import numpy as np
import pytest
import torch

from kru.lab.tasks import Adding, Score


@pytest.mark.parametrize("T", [2, 3, 100])
def test_layout(T: int) -> None:
    batch = Adding(T).load().eval_batches("valid", 500)[0]
    assert batch.inputs.shape == (T, 500, 2)
    assert batch.inputs.dtype == torch.float32
    values, markers = batch.inputs.unbind(-1)
    assert values.min() >= 0
    assert values.max() < 1
    assert markers[: T // 2].sum(0).eq(1).all()
    assert markers[T // 2 :].sum(0).eq(1).all()
    assert set(markers.unique().tolist()) <= {0, 1}
    assert torch.allclose(batch.targets[:, 0], (values * markers).sum(0))


def test_every_place_is_marked_alike() -> None:
    task = Adding(10).load()
    batch = task.take("train", np.arange(50_000))
    assert (batch.inputs[..., 1].mean(1) - 0.2).abs().max() < 0.01
    assert (batch.inputs[..., 0].mean(1) - 0.5).abs().max() < 0.01


def test_splits_share_no_sequence() -> None:
    task = Adding(2).load()
    numbers = [task.take(s, np.arange(task.size(s))).inputs[..., 0] for s in ("train", "valid", "test")]
    rows = torch.cat(numbers, dim=1)
    assert rows.shape[1] == 120_000
    assert rows.unique(dim=1).shape[1] == 120_000


def test_baseline_is_the_error_of_the_constant_one() -> None:
    task = Adding(100).load()
    score = Score()
    for batch in task.eval_batches("test", 1000):
        score += task.score(torch.ones_like(batch.targets), batch)
    assert score.count == 10_000
    assert round(task.baseline, 3) == 0.167
    assert score.value == pytest.approx(task.baseline, abs=0.006)


def test_sequence_does_not_depend_on_the_batch() -> None:
    task = Adding(50, seed=3).load()
    whole, one = task.take("train", np.arange(64)), task.take("train", np.array([63]))
    assert torch.equal(whole.inputs[:, 63:], one.inputs)
    assert torch.equal(whole.targets[63:], one.targets)


def test_a_batch_is_made_fast() -> None:
    batches = Adding(1000).load().train_batches(20, epoch=0, seed=0)
    seconds = []
    for index in range(50):
        begin = time.perf_counter()
        batches[index]
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 1e-3


def test_training_begins_with_short_sequences() -> None:
    task, fixed = Adding(70, short_length=10, short_epochs=2).load(), Adding(70).load()
    lengths = []
    for epoch in range(4):
        batches = task.train_batches(50, epoch=epoch, seed=1)
        assert len(batches) == 2000
        lengths.append(len(batches[3].inputs))
        assert torch.allclose(batches[3].targets[:, 0], batches[3].inputs.prod(-1).sum(0))
    assert lengths == [10, 10, 70, 70]
    for split in ("valid", "test"):
        assert torch.equal(task.eval_batches(split, 50)[1].inputs, fixed.eval_batches(split, 50)[1].inputs)
    last = (each.train_batches(50, epoch=2, seed=1)[7].inputs for each in (task, fixed))
    assert torch.equal(*last)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="short_length: expected 2 to T = 9, got 10"):
        Adding(9, short_length=10, short_epochs=1).load()
    with pytest.raises(ValueError, match="short_epochs: expected at least 0, got -1"):
        Adding(9, short_epochs=-1).load()
    with pytest.raises(ValueError, match="T: expected at least 2, got 1"):
        Adding(1).load()
