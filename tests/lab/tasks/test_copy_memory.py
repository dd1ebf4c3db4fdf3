import math
import time

import numpy as np
import pytest
import torch

from kru.lab.tasks import CopyMemory


@pytest.mark.parametrize("T", [1, 2, 30])
def test_layout(T: int) -> None:
    task = CopyMemory(T).load()
    batch = task.eval_batches("valid", 5)[0]
    assert batch.inputs.shape == batch.targets.shape == (T + 20, 5)
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    message = batch.inputs[:10]
    assert message.min() >= 1
    assert message.max() <= 8
    assert batch.inputs[10 : 10 + T - 1].eq(0).all()
    assert batch.inputs[10 + T - 1].eq(9).all()
    assert batch.inputs[10 + T :].eq(0).all()
    assert batch.inputs[10 + T :].shape[0] == 10
    assert batch.targets[: T + 10].eq(0).all()
    assert torch.equal(batch.targets[T + 10 :], message)


def test_sequences_are_all_different_and_uniform() -> None:
    task = CopyMemory(1).load()
    messages = [task.take(s, np.arange(task.size(s))).inputs[:10] for s in ("train", "valid", "test")]
    assert [message.shape[1] for message in messages] == [100_000, 10_000, 10_000]
    row = torch.cat(messages, dim=1)
    digits = 8 ** torch.arange(10)[:, None]
    assert ((row - 1) * digits).sum(0).unique().numel() == 120_000
    for place in range(10):
        shares = torch.bincount(row[place] - 1, minlength=8) / 120_000
        assert (shares - 1 / 8).abs().max() < 0.005
    pairs = torch.bincount((row[0] - 1) * 8 + row[1] - 1, minlength=64) / 120_000
    assert (pairs - 1 / 64).abs().max() < 0.002


def test_seed_chooses_the_sequences_and_batching_does_not() -> None:
    task = CopyMemory(5, seed=1).load()
    whole = task.take("test", np.arange(40))
    one = task.take("test", np.array([17]))
    assert torch.equal(whole.inputs[:, 17:18], one.inputs)
    assert not torch.equal(whole.inputs, CopyMemory(5, seed=2).load().take("test", np.arange(40)).inputs)


@pytest.mark.parametrize(("T", "expected"), [(1000, 0.0204), (2000, 0.0103)])
def test_baseline_is_the_score_without_memory(T: int, expected: float) -> None:
    task = CopyMemory(T).load()
    assert task.baseline == pytest.approx(10 * math.log(8) / (T + 20))
    assert round(task.baseline, 4) == expected
    batch = task.eval_batches("valid", 20)[0]
    outputs = torch.full((T + 20, 20, 10), -1e4)
    outputs[: T + 10, :, 0] = 0
    outputs[T + 10 :, :, 1:9] = 0
    score = task.score(outputs, batch)
    assert score.count == (T + 20) * 20
    assert score.value == pytest.approx(task.baseline, rel=1e-6)
    assert task.loss(outputs, batch).item() == pytest.approx(task.baseline, rel=1e-5)


def test_a_batch_is_made_fast() -> None:
    batches = CopyMemory(1000).load().train_batches(20, epoch=0, seed=0)
    seconds = []
    for index in range(50):
        begin = time.perf_counter()
        batches[index]
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 1e-3


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="T: expected at least 1, got 0"):
        CopyMemory(0).load()
    with pytest.raises(ValueError, match=r"seed: expected 0 to 2\^63 - 1, got -1"):
        CopyMemory(5, seed=-1).load()
