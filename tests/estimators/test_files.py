"""Files of sequences, and what is said of bad ones."""

import os
import resource
import struct
import wave
import zipfile

import numpy as np
import pandas as pd
import pytest

from kru.estimators import files
from kru.estimators.data import read_cases
from kru.estimators.files import read, read_text
from kru.sound import read_wav

LONG = "case,time,x,z,label\nb,2,3,4,up\nb,1,1,2,up\na,1,5,6,down\n"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_long_tables(tmp_path, ending):
    path = tmp_path / f"data.{ending}"
    (tmp_path / "data.csv").write_text(LONG)
    if ending == "parquet":
        pd.read_csv(tmp_path / "data.csv").to_parquet(path)
    data = read(path, target="label")
    cases = read_cases(data.X)
    assert cases.values[:, 0].tolist() == [[1, 2], [3, 4]]
    assert cases.lengths.tolist() == [2, 1]
    assert data.y.tolist() == ["up", "down"]
    assert data.names == ["b", "a"]
    other = tmp_path / "other.csv"
    other.write_text(LONG.replace("case", "id").replace("time", "t"))
    again = read(other, target="label", case="id", time="t")
    np.testing.assert_array_equal(read_cases(again.X).values, cases.values)


def test_wide_tables(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("t0,t1,label\n1,2,7\n3,4,9\n")
    data = read(path, target="label")
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert data.y.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case,time,x,label\na,1,oops,up\n", r"row 2, column 'x': expected a number, got 'oops'"),
        ("case,time,x,label\na,1,1,up\na,2,1,down\n", "case a: expected one target, got 2 in column 'label'"),
        ("case,time,x,label\na,1,1,\n", "row 2, column 'label': expected a target, got nothing"),
        ("case,time,x\na,1,1\n", "expected a column 'label', got case, time, x"),
        ("case,time,label\na,1,1\n", "expected at least one column of values"),
        ("case,time,label\n", "expected at least one row, got none"),
        ("", "expected a table"),
    ],
)
def test_bad_tables_are_named(tmp_path, text, message):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"data.csv: {message}"):
        read(path, target="label")


def test_npz(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, X=np.ones((3, 2, 5)), y=[1, 2, 3])
    data = read(path)
    assert data.X.shape == (3, 2, 5)
    assert data.y.tolist() == [1, 2, 3]
    np.savez(path, X=np.ones((3, 2, 5)), y=[1, 2])
    with pytest.raises(ValueError, match="y: expected 3 targets, one for each case, got 2"):
        read(path)
    np.savez(path, Z=np.ones(3))
    with pytest.raises(ValueError, match="expected an array X, got Z"):
        read(path)
    objects = np.empty(1, dtype=object)
    objects[0] = [1]
    np.savez(path, X=objects)
    with pytest.raises(ValueError, match="without pickled objects"):
        read(path)


def npy(header: str) -> bytes:
    text = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(1000)


@pytest.mark.parametrize(
    ("member", "method", "message"),
    [
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1), }"), 8, "promises shape"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }"), 8, "promises shape"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': ("), 8, "expected arrays of numbers"),
        (bytes(3 * 10**8), 8, "bytes unpack to 300,000,000"),
        (bytes(1000), 14, "packed by method 14"),
    ],
)
def test_npz_files_that_promise_too_much(tmp_path, member, method, message):
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("X.npy", member)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=message):
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB, on Linux


def test_damaged_npz_files_are_named(tmp_path):
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, X=np.random.default_rng(0).normal(size=(3, 2, 50)))
    content = whole.read_bytes()
    path = tmp_path / "data.npz"
    for place in range(30, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            read(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}])
def test_tables_with_lists_are_refused(tmp_path, value):
    path = tmp_path / "data.parquet"
    pd.DataFrame({"case": [value], "time": [1], "x": [1.0], "label": ["a"]}).to_parquet(path)
    with pytest.raises(ValueError, match="column 'case': expected numbers, strings or times, got"):
        read(path, target="label")


def test_parquet_files_that_unpack_to_too_much_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "data.parquet"
    pd.DataFrame({"t0": np.zeros(1000), "label": np.zeros(1000)}).to_parquet(path)
    assert len(read(path, target="label").X) == 1000
    monkeypatch.setattr(files, "CELLS", 1999)
    with pytest.raises(ValueError, match="it has 2,000 cells in"):
        read(path, target="label")


def test_ts(tmp_path):
    path = tmp_path / "data.ts"
    path.write_text(
        "# remark\n@problemName a\n@classLabel true up down\n@data\n1,2,?:4,5,6:up\n7,8:9,1:down\n"
    )
    data = read(path)
    assert [case.shape for case in data.X] == [(2, 3), (2, 2)]
    assert np.isnan(data.X[0][0, 2])
    assert data.y.tolist() == ["up", "down"]
    path.write_text("@targetLabel true\n@data\n1,2:3.5\n")
    assert read(path).y.tolist() == [3.5]
    path.write_text("@classLabel true a\n@data\n1,x:a\n")
    with pytest.raises(ValueError, match="line 3, channel 0, time 1: expected a number or \\?, got 'x'"):
        read(path)
    path.write_text("@classLabel true a\n@data\n1,2:a\n1,2:3,4:a\n")
    with pytest.raises(ValueError, match="line 4: expected 1 channels, got 2"):
        read(path)


def test_ts_files_of_aeon_are_read_alike():
    aeon = pytest.importorskip("aeon")
    from aeon.datasets import load_from_ts_file

    path = os.path.join(
        os.path.dirname(aeon.__file__), "datasets/data/JapaneseVowels/JapaneseVowels_TRAIN.ts"
    )
    X, y = load_from_ts_file(path)
    data = read(path)
    assert all(np.array_equal(a, b) for a, b in zip(data.X, X, strict=True))
    np.testing.assert_array_equal(data.y, y)


def write_wav(path, frames: bytes, width: int, channels: int = 1, rate: int = 8000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)


def test_wav_of_all_widths(tmp_path):
    path = tmp_path / "a.wav"
    cases = {
        1: bytes([128, 192, 0]),
        2: struct.pack("<3h", 0, 2**14, -(2**15)),
        3: b"".join(v.to_bytes(3, "little", signed=True) for v in (0, 2**22, -(2**23))),
        4: struct.pack("<3i", 0, 2**30, -(2**31)),
    }
    for width, frames in cases.items():
        write_wav(path, frames, width)
        samples, rate = read_wav(path)
        assert samples.tolist() == [[0, 0.5, -1]]
        assert rate == 8000
    write_wav(path, struct.pack("<4h", 1, 2, 3, 4), 2, channels=2)
    assert (read_wav(path)[0] * 2**15).tolist() == [[1, 3], [2, 4]]


def test_wav_folders(tmp_path):
    for label in ("yes", "no"):
        for number in (0, 1):
            write_wav(tmp_path / label / f"{number}_ann_{label}.wav", struct.pack("<2h", 1, number), 2)
    data = read(tmp_path)
    assert data.y.tolist() == ["no", "no", "yes", "yes"]
    assert read(tmp_path, label_pattern=r"^(\d)_").y.tolist() == ["0", "1", "0", "1"]
    with pytest.raises(ValueError, match="expected a name with a group that matches"):
        read(tmp_path, label_pattern="(bob)")
    write_wav(tmp_path / "yes" / "z.wav", b"\0\0", 2, rate=16000)
    with pytest.raises(
        ValueError, match=r"z.wav: expected 1 channels at 8000 Hz as in .*, got 1 at 16000 Hz"
    ):
        read(tmp_path)
    (tmp_path / "yes" / "z.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"z\.wav: expected an uncompressed WAV file"):
        read(tmp_path)


def test_text_and_other_files(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ok \xff")
    with pytest.raises(
        ValueError, match='expected UTF-8, got byte 0xff at 3; symbols="bytes" takes any file'
    ):
        read_text(path)
    with pytest.raises(ValueError, match=r"expected a file that ends in \.csv"):
        read(path)
    with pytest.raises(ValueError, match="got nothing there"):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize(("separator", "decimal"), [(";", "."), (";", ","), ("\t", "."), ("\t", ",")])
def test_tables_of_spreadsheets(separator, decimal, tmp_path):
    rows = [
        ["case", "time", "x", "label"],
        ["a", "1", "0.5", "up"],
        ["a", "2", "-7", "up"],
        ["b", "1", "1.25", "down"],
    ]
    text = "".join(separator.join(cell.replace(".", decimal) for cell in row) + "\r\n" for row in rows)
    (tmp_path / "d.csv").write_text(text, encoding="utf-8-sig")
    data = read(tmp_path / "d.csv", target="label")
    assert data.X["x"].tolist() == [0.5, -7, 1.25]
    assert data.y.tolist() == ["up", "down"]


def test_other_encodings_are_named(tmp_path):
    (tmp_path / "d.csv").write_bytes("case,time,x\nmüde,1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"d\.csv: expected UTF-8, got byte 0xfc"):
        read(tmp_path / "d.csv")
