from pathlib import Path

import numpy as np
import pytest
import torch

from kru.lab.data import DataError
from kru.lab.tasks import Score, Timit
from kru.lab.tasks.audio import riff_bytes
from kru.lab.tasks.phones import FOLDED_PHONES, PHONES, fold
from kru.lab.tasks.speech_corpus import generate
from kru.lab.tasks.speech_files import Utterance
from kru.lab.tasks.timit import TimitTask, split_utterances
from kru.training.task import IGNORED


def utterance(part: str, speaker: str, sentence: str) -> Utterance:
    return Utterance(part, speaker, sentence, "", bytes, bytes)


def spoken(part: str, speakers: int, first: int = 0) -> list[Utterance]:
    sentences = ["sa1", "sa2", "si1", "si2", "si3", "sx1", "sx2", "sx3", "sx4", "sx5"]
    names = [f"{'fm'[n % 3 > 0]}abc{n}" for n in range(first, first + speakers)]
    return [utterance(part, name, sentence) for name in names for sentence in sentences]


def speakers_of(utterances: list[Utterance]) -> set[str]:
    return {utterance.speaker for utterance in utterances}


def test_phones() -> None:
    assert len(PHONES) == 61
    assert len(FOLDED_PHONES) == 39
    assert fold("q") is None
    assert fold("h#") == fold("bcl") == "sil"
    assert fold("zh") == "sh"
    assert fold("iy") == "iy"


def test_split_of_the_full_corpus() -> None:
    splits = split_utterances(spoken("train", 462) + spoken("test", 168, first=462))
    assert {split: len(members) for split, members in splits.items()} == {
        "train": 3696 - 184,
        "valid": 184,
        "test": 1344,
    }
    assert all(member.part == "test" for member in splits["test"])
    assert all(member.part == "train" for split in ("train", "valid") for member in splits[split])
    assert not speakers_of(splits["train"]) & speakers_of(splits["valid"])
    women = sum(speaker.startswith("f") for speaker in speakers_of(splits["valid"]))
    assert women in (11, 12)


def test_split_by_speaker() -> None:
    splits = split_utterances(spoken("", 16))
    sets = [speakers_of(splits[split]) for split in ("train", "valid", "test")]
    assert [len(speakers) for speakers in sets] == [10, 2, 4]
    assert len(set.union(*sets)) == 16
    assert not any(member.sentence.startswith("sa") for members in splits.values() for member in members)
    assert splits == split_utterances(spoken("", 16))
    with pytest.raises(DataError, match=r"no utterance is left for train out of 16 .* expected at least 3"):
        split_utterances(spoken("", 2))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("timit") / "corpus"
    generate(directory, speakers=8, sentences=3, engine="signals")
    return directory


def linear_accuracy(task: TimitTask) -> float:
    """Frame accuracy on the test split of a linear map fitted on the training split by least squares."""
    rows, wanted = [], []
    for batch in task.eval_batches("train", 8):
        counted = batch.targets != IGNORED
        rows.append(batch.inputs[counted])
        wanted.append(batch.targets[counted])
    x = torch.cat(rows)
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    y = torch.nn.functional.one_hot(torch.cat(wanted), task.output_size).float()
    weight = torch.linalg.lstsq(x, y).solution
    score = Score()
    for batch in task.eval_batches("test", 8):
        score += task.score(batch.inputs @ weight[:-1] + weight[-1], batch)
    return score.value


def test_features_tell_the_phones(corpus: Path) -> None:
    """Labels lie where the sound is: a linear map does far better than the commonest phone."""
    task = Timit(str(corpus)).load()
    assert (task.input_size, task.output_size) == (26, 61)
    assert [task.size(split) for split in ("train", "valid", "test")] == [15, 3, 6]
    assert linear_accuracy(task) > 4 * task.baseline


def test_normalised_on_the_training_split(corpus: Path) -> None:
    task = Timit(str(corpus)).load()
    batches = [task.take("train", np.array([n])).inputs[:, 0] for n in range(task.size("train"))]
    frames = torch.cat(batches).double()
    assert frames.mean(0).abs().max() < 1e-5
    assert (frames.std(0, correction=0) - 1).abs().max() < 1e-5
    valid = torch.cat([task.take("valid", np.array([n])).inputs[:, 0] for n in range(task.size("valid"))])
    assert (valid.std(0) - 1).abs().max() > 1e-3


def test_padding_and_lengths(corpus: Path) -> None:
    task = Timit(str(corpus)).load()
    batch = task.take("train", np.array([0, 1, 2]))
    assert batch.lengths is not None
    for b, length in enumerate(batch.lengths.tolist()):
        alone = task.take("train", np.array([b]))
        assert alone.lengths is None
        assert torch.equal(batch.inputs[:length, b], alone.inputs[:, 0])
        assert torch.equal(batch.targets[:length, b], alone.targets[:, 0])
        assert batch.targets[length:, b].eq(IGNORED).all()


def test_folding_drops_the_glottal_stop(corpus: Path, tmp_path: Path) -> None:
    for part in ("train/dr1/fa0", "train/dr1/ma0", "test/dr1/fb0"):
        folder = tmp_path / part
        folder.mkdir(parents=True)
        source = next(corpus.rglob("SX1.WAV"))
        (folder / "sx1.wav").write_bytes(source.read_bytes())
        (folder / "sx1.phn").write_text("0 4000 h#\n4000 8000 q\n8000 60000 zh\n")
    plain, folded = Timit(str(tmp_path)).load(), Timit(str(tmp_path), folded=True).load()
    targets = plain.take("test", np.array([0])).targets[:, 0]
    folded_targets = folded.take("test", np.array([0])).targets[:, 0]
    assert folded.output_size == 39
    assert torch.equal(folded_targets == IGNORED, targets == PHONES.index("q"))
    assert (folded_targets[:20] == FOLDED_PHONES.index("sil")).all()
    assert folded_targets[-1] == FOLDED_PHONES.index("sh")


def test_too_short_a_recording(corpus: Path, tmp_path: Path) -> None:
    for speaker in ("fa0", "ma0", "fb0"):
        (tmp_path / speaker).mkdir()
        (tmp_path / speaker / "sx1.wav").write_bytes(riff_bytes(np.zeros(399, np.int16)))
        (tmp_path / speaker / "sx1.phn").write_text("0 399 h#\n")
    with pytest.raises(DataError, match="expected at least 25 ms of sound, got 399 samples"):
        Timit(str(tmp_path)).load()


def test_an_unpacked_corpus_in_the_data_directory(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="kru data fetch timit"):
        Timit().load(tmp_path)
    (tmp_path / "timit").symlink_to(corpus)
    assert Timit().load(tmp_path).size("train") == 15


def test_real_sample(real_data: Path) -> None:
    task = Timit().load(real_data)
    assert [task.size(split) for split in ("train", "valid", "test")] == [80, 16, 32]
    everyone = [speakers_of(members) for members in task.utterances.values()]
    assert len(set.union(*everyone)) == sum(len(speakers) for speakers in everyone) == 16
    assert linear_accuracy(task) > 2 * task.baseline
    folded = Timit(folded=True).load(real_data)
    assert folded.output_size == 39
    assert linear_accuracy(folded) > 1.6 * folded.baseline
