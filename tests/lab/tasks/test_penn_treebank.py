from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from kru.lab.data import DataError
from kru.lab.tasks import PennTreebank, Score
from kru.lab.tasks.penn_treebank import PennTreebankTask, read_characters
from kru.training.task import Batches


def streams(batches: Batches, batch_size: int) -> tuple[list[list[int]], list[list[int]]]:
    """The inputs and the targets of each stream in one row, without what lies past its end."""
    inputs: list[list[int]] = [[] for _ in range(batch_size)]
    targets: list[list[int]] = [[] for _ in range(batch_size)]
    for index, batch in enumerate(batches):
        assert batch.carry == (index > 0)
        for b in range(batch_size):
            length = batch.inputs.shape[0] if batch.lengths is None else int(batch.lengths[b])
            inputs[b] += batch.inputs[:length, b].tolist()
            targets[b] += batch.targets[:length, b].tolist()
            assert batch.targets[length:, b].eq(-100).all()
    return inputs, targets


@pytest.mark.parametrize("batch_size", [1, 2, 7, 50])
def test_every_character_is_predicted_once_from_the_one_before(ptb_directory: Path, batch_size: int) -> None:
    task = PennTreebank(bptt=30).load(ptb_directory)
    for split, batches in (
        ("train", task.train_batches(batch_size, epoch=0, seed=0)),
        ("test", task.eval_batches("test", batch_size)),
    ):
        text = read_characters(ptb_directory / f"ptb/ptb.{split}.txt")
        inputs, targets = streams(batches, batch_size)
        joined = [code for stream in targets for code in stream]
        assert "".join(task.characters[code] for code in joined) == text
        before = [code for stream in inputs for code in stream]
        assert "".join(task.characters[code] for code in before) == "\n" + text[:-1]
        lengths = [len(stream) for stream in targets]
        assert max(lengths) - min(lengths) <= 1
        assert len(batches) == -(-max(lengths) // (30 if split == "train" else 250))


def test_bits_per_character_are_exact(ptb_directory: Path) -> None:
    """A bigram model has its memory in the input, so batches must give what a loop over the text gives."""
    task = PennTreebank().load(ptb_directory)
    torch.manual_seed(0)
    table = torch.randn(task.input_size, task.output_size).log_softmax(-1)
    text = read_characters(ptb_directory / "ptb/ptb.test.txt")
    codes = [task.characters.index(character) for character in "\n" + text]
    pairs = pairwise(codes)
    expected = np.mean([-table[before, after].double().item() / np.log(2) for before, after in pairs])
    for batch_size in (1, 8, 50):
        score = Score()
        for batch in task.eval_batches("test", batch_size):
            score += task.score(table[batch.inputs], batch)
        assert score.count == len(text)
        assert score.value == pytest.approx(expected, rel=1e-6)


def test_preprocessing(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(" a <unk> \n  b N  \n")
    assert read_characters(path) == "a <unk>\nb N\n"
    path.write_bytes(b" \n \n")
    with pytest.raises(DataError, match="expected text, got nothing but space"):
        read_characters(path)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="expected text in UTF-8"):
        read_characters(path)


def test_unknown_characters(ptb_directory: Path, register: Callable[[str, Path], None]) -> None:
    (ptb_directory / "ptb/ptb.valid.txt").write_text(" it was % \n")
    register("ptb", ptb_directory)
    with pytest.raises(DataError, match=r"ptb\.valid\.txt: has characters that ptb\.train\.txt lacks: '%'"):
        PennTreebank().load(ptb_directory)


def test_bad_settings(ptb_directory: Path) -> None:
    with pytest.raises(ValueError, match="bptt: expected at least 1, got 0"):
        PennTreebank(bptt=0).load(ptb_directory)
    task = PennTreebank().load(ptb_directory)
    with pytest.raises(ValueError, match="batch_size: expected at most the"):
        task.eval_batches("valid", 10**6)
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        task.eval_batches("valid", 0)


@pytest.fixture(scope="module")
def real_task(real_data: Path) -> PennTreebankTask:
    return PennTreebank().load(real_data)


def test_real_counts(real_task: PennTreebankTask) -> None:
    assert [real_task.size(split) for split in ("train", "valid", "test")] == [5_017_482, 393_042, 442_423]
    assert real_task.input_size == real_task.output_size == 50
    counted = 0
    batches = real_task.eval_batches("test", 50)
    for batch in batches:
        assert batch.inputs.max() < 50
        counted += int((batch.targets != -100).sum())
    assert counted == 442_423
    # 100,350 steps of 50 streams in windows of 30.
    assert len(real_task.train_batches(50, epoch=0, seed=0)) == 3345
