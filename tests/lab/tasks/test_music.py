from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from kru.lab.data import DataError
from kru.lab.tasks import Music, Score, Split
from kru.lab.tasks.music import read_rolls


def test_input_is_the_frame_before(music_directory: Path) -> None:
    task = Music("jsb").load(music_directory)
    rolls = read_rolls(music_directory / "music/JSB_Chorales.mat")["train"]
    batch = task.take("train", np.array([2, 1, 0]))
    assert batch.inputs.shape == batch.targets.shape == (12, 3, 88)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [3, 12, 7]
    for b, roll in enumerate((rolls[2], rolls[1], rolls[0])):
        frames = torch.from_numpy(roll).float()
        assert torch.equal(batch.targets[: len(roll), b], frames)
        assert batch.inputs[0, b].eq(0).all()
        assert torch.equal(batch.inputs[1 : len(roll), b], frames[:-1])
        assert batch.targets[len(roll) :, b].eq(0).all()


def test_equal_lengths_need_no_lengths(music_directory: Path) -> None:
    task = Music("jsb").load(music_directory)
    assert task.eval_batches("valid", 2)[0].lengths is None


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_likelihood_counts_real_steps_only(music_directory: Path, batch_size: int) -> None:
    """Against a loop over sequences, steps and keys, with outputs that depend on the input."""
    task = Music("jsb").load(music_directory)
    torch.manual_seed(0)
    weight, bias = torch.randn(88, 88) / 9, torch.randn(88)
    total, steps = 0.0, 0
    for roll in read_rolls(music_directory / "music/JSB_Chorales.mat")["test"]:
        previous = np.zeros(88)
        for frame in roll:
            logits = previous @ weight.double().numpy() + bias.double().numpy()
            p = 1 / (1 + np.exp(-logits))
            total -= (frame * np.log(p) + (1 - frame.astype(float)) * np.log(1 - p)).sum()
            steps += 1
            previous = frame.astype(float)
    score = Score()
    for batch in task.eval_batches("test", batch_size):
        outputs = batch.inputs @ weight + bias
        score += task.score(outputs, batch)
        assert task.loss(outputs, batch).item() == pytest.approx(task.score(outputs, batch).value, rel=1e-5)
    assert score.count == steps == 4 + 11 + 6
    assert score.value == pytest.approx(total / steps, rel=1e-5)


def test_padding_has_no_gradient(music_directory: Path) -> None:
    task = Music("jsb").load(music_directory)
    batch = task.take("train", np.array([2, 1]))
    outputs = torch.randn(12, 2, 88, requires_grad=True)
    task.loss(outputs, batch).backward()
    assert outputs.grad is not None
    assert outputs.grad[3:, 0].eq(0).all()
    assert outputs.grad[:3, 0].ne(0).all()


def test_a_file_of_ones_own(music_directory: Path) -> None:
    path = music_directory / "music/JSB_Chorales.mat"
    own = music_directory / "own.mat"
    own.write_bytes(path.read_bytes())
    assert Music(str(own)).load().size("train") == 5
    with pytest.raises(DataError, match=r"missing; expected a \.mat file"):
        Music(str(music_directory / "none.mat")).load()
    with pytest.raises(ValueError, match="collection: expected one of jsb, piano-midi, nottingham or a path"):
        Music("musedata").load()


def cells(*rolls: np.ndarray) -> np.ndarray:
    array = np.empty((1, len(rolls)), object)
    for n, roll in enumerate(rolls):
        array[0, n] = roll
    return array


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (None, "got no traindata"),
        (np.zeros((3, 88)), "got no traindata"),
        (np.empty((1, 0), object), "traindata: expected matrices, got an empty cell array"),
        (cells(np.zeros((3, 87))), r"traindata\[0\]: expected a matrix \(steps, 88\)"),
        (cells(np.zeros((3, 88)), np.full((2, 88), 2)), r"traindata\[1\]: expected nothing but 0 and 1"),
        (cells(np.full((3, 88), np.nan)), "expected nothing but 0 and 1"),
        (cells(np.zeros((0, 88))), "expected a matrix"),
        (cells(np.full((3, 88), "a")), "expected cell arrays of matrices"),
    ],
)
def test_broken_contents(tmp_path: Path, train: np.ndarray | None, message: str) -> None:
    good = cells(np.zeros((3, 88)))
    contents = {"validdata": good, "testdata": good}
    if train is not None:
        contents["traindata"] = train
    path = tmp_path / "rolls.mat"
    scipy.io.savemat(path, contents)
    with pytest.raises(DataError, match=message):
        read_rolls(path)


def test_broken_files(music_directory: Path) -> None:
    content = (music_directory / "music/JSB_Chorales.mat").read_bytes()
    path = music_directory / "broken.mat"
    for broken in (b"", b"short", content[:100], content[:400], bytes(500), content[:200] + bytes(400)):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"broken\.mat"):
            read_rolls(path)


REAL = {
    "jsb": ([229, 76, 77], [13_807, 4_602, 4_725], -11.06),
    "piano-midi": ([87, 12, 25], [75_911, 8_540, 19_036], -11.05),
    "nottingham": ([694, 173, 170], [176_561, 45_513, 44_463], -10.25),
}


@pytest.mark.parametrize("collection", REAL)
def test_real_collections(real_data: Path, collection: str) -> None:
    """Counts, and a note 1-gram run through the batches: its figure is that of the mean over time steps."""
    sequences, steps, expected = REAL[collection]
    task = Music(collection).load(real_data)
    splits: tuple[Split, ...] = ("train", "valid", "test")
    assert [task.size(split) for split in splits] == sequences
    counts = {}
    notes = torch.zeros(88, dtype=torch.float64)
    for split in splits:
        counts[split] = 0
        for batch in task.eval_batches(split, 8):
            real = batch.real_steps()
            counts[split] += batch.targets[..., 0].numel() if real is None else int(real.sum())
            if split == "train":
                notes += batch.targets.sum((0, 1), dtype=torch.float64)
    assert list(counts.values()) == steps
    p = (notes + 0.01) / (counts["train"] + 0.02)
    logits = (p / (1 - p)).log().float()
    score = Score()
    for batch in task.eval_batches("test", 8):
        score += task.score(logits.expand_as(batch.targets), batch)
    assert score.count == steps[2]
    assert round(-score.value, 2) == expected
    assert task.baseline == pytest.approx(score.value, rel=1e-6)
