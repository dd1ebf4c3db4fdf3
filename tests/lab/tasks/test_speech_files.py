import zipfile
from pathlib import Path

import numpy as np
import pytest

from kru.lab.data import DataError
from kru.lab.tasks.audio import RECORDING_LIMIT, riff_bytes
from kru.lab.tasks.speech_files import LABELS_LIMIT, Segment, open_corpus, parse_labels, phones_at

SOUND = riff_bytes(np.arange(800, dtype=np.int16))
LABELS = b"0 300 h#\n300 800 iy\n"


def fill(root: Path, names: list[str]) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LABELS if name.lower().endswith(".phn") else SOUND)
    return root


FULL = ["TIMIT/TRAIN/DR1/FCJF0/SA1.WAV", "TIMIT/TRAIN/DR1/FCJF0/SA1.PHN"]
FULL += ["TIMIT/TEST/DR8/MJLN0/SX9.wav", "TIMIT/TEST/DR8/MJLN0/sx9.phn"]
SAMPLE = ["timit/dr1-fvmh0/si836.wav", "timit/dr1-fvmh0/si836.phn", "timit/README"]


def test_layouts(tmp_path: Path) -> None:
    with open_corpus(fill(tmp_path / "full", FULL)) as utterances:
        found = [(u.part, u.speaker, u.sentence) for u in utterances]
        assert utterances[0].samples().tolist() == list(range(800))
        assert utterances[0].segments() == [Segment(0, 300, "h#"), Segment(300, 800, "iy")]
    assert found == [("test", "mjln0", "sx9"), ("train", "fcjf0", "sa1")]
    with open_corpus(fill(tmp_path / "sample", SAMPLE)) as utterances:
        assert [(u.part, u.speaker, u.sentence) for u in utterances] == [("", "fvmh0", "si836")]


def test_zip_is_the_same_as_a_directory(tmp_path: Path) -> None:
    root = fill(tmp_path / "full", FULL)
    with zipfile.ZipFile(tmp_path / "full.zip", "w") as packed:
        for name in FULL:
            packed.write(root / name, name)
    with open_corpus(root) as utterances, open_corpus(tmp_path / "full.zip") as zipped:
        assert [(u.part, u.speaker, u.sentence) for u in utterances] == [
            (u.part, u.speaker, u.sentence) for u in zipped
        ]
        assert zipped[1].samples().tolist() == utterances[1].samples().tolist()


def test_names_in_a_zip_write_nothing(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with zipfile.ZipFile(inner / "evil.zip", "w") as packed:
        for name in ("../../evil/sx1", "/absolute/sx1", "..\\windows\\sx1"):
            packed.writestr(f"{name}.wav", SOUND)
            packed.writestr(f"{name}.phn", LABELS)
    with open_corpus(inner / "evil.zip") as utterances:
        assert len(utterances) == 2
        for utterance in utterances:
            utterance.samples()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["evil.zip", "inner"]


def test_two_formats_of_one_recording(tmp_path: Path) -> None:
    folder = "TRAIN/DR1/FCJF0/"
    names = [folder + name for name in ("SA1.WAV", "SA1.WAV.wav", "SA1.PHN")]
    # Archives made on a Mac have an entry ._name of other content beside each file.
    names += ["__MACOSX/" + folder + "._SA1.WAV"]
    with open_corpus(fill(tmp_path, names)) as utterances:
        assert [u.sentence for u in utterances] == ["sa1"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["readme.txt"], "found no .wav; name the directory or zip of a corpus in TIMIT's layout"),
        (["train/dr1/fcjf0/sa1.wav"], "sa1.wav has no labels train/dr1/fcjf0/sa1.phn beside it"),
        (["sa1.wav", "sa1.phn"], "expected sa1.wav in a folder named after its speaker"),
    ],
)
def test_broken_layouts(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message), open_corpus(fill(tmp_path / "corpus", names)):
        pass


def test_what_is_no_corpus(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="missing; expected the directory or zip"),
        open_corpus(tmp_path / "no"),
    ):
        pass
    (tmp_path / "text.zip").write_text("no zip")
    with (
        pytest.raises(DataError, match="expected a zip archive"),
        open_corpus(tmp_path / "text.zip"),
    ):
        pass


def test_damaged_member(tmp_path: Path) -> None:
    path = tmp_path / "c.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a/sx1.wav", SOUND)
        packed.writestr("a/sx1.phn", LABELS)
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)
    with open_corpus(path) as utterances, pytest.raises(DataError, match=r"cannot read member 'a/sx1\.wav'"):
        utterances[0].samples()


@pytest.mark.parametrize("packed", [False, True])
def test_recordings_and_labels_have_limits(tmp_path: Path, packed: bool) -> None:
    for name, size in (("sx1.wav", RECORDING_LIMIT + 1), ("sx1.phn", LABELS_LIMIT + 1)):
        (tmp_path / "c" / "a").mkdir(parents=True, exist_ok=True)
        with open(tmp_path / "c" / "a" / name, "wb") as stream:
            stream.truncate(size)
    corpus = tmp_path / "c"
    if packed:
        corpus = tmp_path / "c.zip"
        with zipfile.ZipFile(corpus, "w") as archive:
            for name in ("sx1.wav", "sx1.phn"):
                archive.write(tmp_path / "c" / "a" / name, f"a/{name}")
    with open_corpus(corpus) as utterances:
        with pytest.raises(DataError, match=r"expected at most 9,665,536"):
            utterances[0].samples()
        with pytest.raises(DataError, match=r"expected at most 262,144"):
            utterances[0].segments()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected lines `begin end phone`, got none"),
        (b"0 10 h#\n10 iy\n", "line 2: expected `begin end phone`, got '10 iy'"),
        (b"0 -10 h#\n", "line 1: expected `begin end phone`"),
        (b"0 10 xyz\n", "line 1: expected one of TIMIT's 61 phones, got 'xyz'"),
        (b"10 5 h#\n", "line 1: expected segments in order of time"),
        (b"0 10 h#\n20 30 iy\n15 40 s\n", "line 3: expected segments in order of time"),
        (b"\xff\xfe\n", "line 1: expected `begin end phone`"),
    ],
)
def test_broken_labels(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"sx1.phn.*{message}"):
        parse_labels(content, "sx1.phn")


def test_phones_at() -> None:
    segments = [Segment(5, 10, "h#"), Segment(10, 20, "iy"), Segment(25, 30, "s")]
    positions = np.array([0, 5, 9, 10, 19, 22, 25, 99])
    assert phones_at(segments, positions) == ["h#", "h#", "h#", "iy", "iy", "iy", "s", "s"]
