from itertools import pairwise
from pathlib import Path

import pytest

from kru.lab.data import DataError
from kru.lab.tasks import Timit, espeak
from kru.lab.tasks.mfcc import STATIC
from kru.lab.tasks.speech_corpus import Engine, generate
from kru.lab.tasks.speech_files import open_corpus

ENGINES: list[Engine] = ["signals", "espeak"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "espeak" and not espeak.installed():
        pytest.skip("eSpeak NG is not installed: install the package espeak-ng")
    chosen: Engine = request.param
    return chosen


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def test_the_same_arguments_give_the_same_files(tmp_path: Path, engine: Engine) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert generate(tmp_path / name, speakers=4, sentences=1, seed=seed, engine=engine) == engine
    first, second, other = (contents(tmp_path / name) for name in "abc")
    assert first == second
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first if name.endswith(".WAV"))
    assert len(first) == 4 * 3 * 3


def test_layout_and_labels(tmp_path: Path, engine: Engine) -> None:
    generate(tmp_path / "corpus", speakers=5, sentences=2, engine=engine)
    with open_corpus(tmp_path / "corpus") as utterances:
        assert len(utterances) == 20
        assert {(u.part, u.speaker) for u in utterances} == {
            ("train", "fgen0"),
            ("train", "mgen1"),
            ("train", "fgen2"),
            ("test", "mgen3"),
            ("train", "fgen4"),
        }
        phones = set()
        for utterance in utterances:
            samples, segments = utterance.samples(), utterance.segments()
            assert STATIC.frame_count(len(samples)) > 50
            assert abs(samples).max() > 1000
            assert segments[0].begin == 0
            assert segments[-1].end == len(samples)
            assert all(a.end == b.begin for a, b in pairwise(segments))
            assert all(segment.begin < segment.end for segment in segments)
            assert segments[0].phone == segments[-1].phone == "h#"
            phones |= {segment.phone for segment in segments}
        assert len(phones) > 15
    texts = contents(tmp_path / "corpus")
    sentences = {texts[name].split(maxsplit=2)[2] for name in texts if name.endswith("SA1.TXT")}
    assert len(sentences) == 1
    task = Timit(str(tmp_path / "corpus")).load()
    assert [task.size(split) for split in ("train", "valid", "test")] == [6, 2, 2]


def test_auto_takes_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "installed", lambda: False)
    assert generate(tmp_path / "corpus", speakers=4, sentences=1) == "signals"


def test_espeak_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak.espeak_process, "__file__", str(tmp_path / "none.py"))
    with pytest.raises(DataError, match=r"eSpeak NG could not speak: .* or use engine 'signals'"):
        generate(tmp_path / "corpus", speakers=4, sentences=1, engine="espeak")


def test_bad_arguments(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="exists already; name a new or empty directory"):
        generate(tmp_path)
    with pytest.raises(DataError, match="exists already"):
        generate(tmp_path / "file")
    for name, value in (("speakers", 3), ("sentences", 0), ("seed", -1)):
        with pytest.raises(ValueError, match=f"{name}: expected at least"):
            generate(tmp_path / "new", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="engine: expected auto, espeak or signals, got 'festival'"):
        generate(tmp_path / "new", engine="festival")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
