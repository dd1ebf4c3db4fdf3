"""Against scipy on sound files; on damaged ones scipy can crash, and this reader must not."""

import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from kru.lab.data import DataError
from kru.lab.tasks import matlab
from kru.lab.tasks.matlab import read_cells


def cells(*matrices: np.ndarray) -> np.ndarray:
    array = np.empty((1, len(matrices)), object)
    for n, matrix in enumerate(matrices):
        array[0, n] = matrix
    return array


def element(order: str, kind: int, data: bytes) -> bytes:
    return struct.pack(order + "II", kind, len(data)) + data + bytes(-len(data) % 8)


def array(order: str, class_: int, shape: tuple[int, ...], name: bytes, contents: bytes) -> bytes:
    body = element(order, 6, struct.pack(order + "II", class_, 0))
    body += element(order, 5, struct.pack(f"{order}{len(shape)}i", *shape))
    body += element(order, 1, name) + contents
    return element(order, 14, body)


def file_of(order: str, *elements: bytes) -> bytes:
    return (
        b"MATLAB 5.0".ljust(124)
        + struct.pack(order + "H", 0x0100)
        + (b"IM" if order == "<" else b"MI")
        + b"".join(elements)
    )


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8", "?"])
def test_as_scipy_writes_it(tmp_path: Path, dtype: str, compressed: bool) -> None:
    rng = np.random.default_rng(0)
    matrices = [rng.integers(0, 2, shape).astype(dtype) for shape in ((5, 3), (1, 1), (0, 3), (7, 88))]
    path = tmp_path / "file.mat"
    contents = {"first": cells(*matrices), "x": cells(matrices[1]), "plain": matrices[0], "text": "abc"}
    scipy.io.savemat(path, contents, do_compression=compressed)
    read = read_cells(path)
    assert read.keys() == {"first", "x"}
    for ours, theirs in zip(read["first"], scipy.io.loadmat(path)["first"].ravel(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.shape == theirs.shape


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(tmp_path: Path, order: str) -> None:
    matrix = np.arange(6, dtype=order + "i2").reshape(2, 3)
    inner = array(order, 10, (2, 3), b"", element(order, 3, matrix.tobytes(order="F")))
    path = tmp_path / "file.mat"
    path.write_bytes(file_of(order, array(order, 1, (1, 1), b"c", inner)))
    assert [read.tolist() for read in read_cells(path)["c"]] == [matrix.tolist()]


def test_compression_has_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab, "LIMIT", 10_000)
    path = tmp_path / "file.mat"
    bomb = zlib.compress(bytes(10**6))
    path.write_bytes(file_of("<", struct.pack("<II", 15, len(bomb)) + bomb))
    with pytest.raises(DataError, match="longer than 10,000 bytes"):
        read_cells(path)
    nested = array("<", 1, (1, 0), b"c", b"")
    for _ in range(3000):
        packed = zlib.compress(nested, 0)
        nested = struct.pack("<II", 15, len(packed)) + packed
        if len(nested) > 9000:
            break
    path.write_bytes(file_of("<", nested))
    assert read_cells(path) == {}


def test_what_is_left_of_the_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab, "LIMIT", 10_000)
    path = tmp_path / "file.mat"
    # The first takes all that may be unpacked, and zlib takes a limit of 0 for none.
    whole, bomb = (zlib.compress(element("<", 1, bytes(size - 8))) for size in (10_000, 10**6))
    path.write_bytes(file_of("<", *(struct.pack("<II", 15, len(part)) + part for part in (whole, bomb))))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="longer than 10,000 bytes"):
            read_cells(path)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_the_number_of_elements_and_the_size_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.mat"
    path.write_bytes(file_of("<", *[element("<", 1, b"")] * 101))
    assert read_cells(path) == {}
    monkeypatch.setattr(matlab, "MOST_ELEMENTS", 100)
    with pytest.raises(DataError, match="it has more than 100 elements"):
        read_cells(path)
    monkeypatch.setattr(matlab, "LIMIT", 900)
    with pytest.raises(DataError, match="expected at most 900 bytes, got 936"):
        read_cells(path)


def test_damage_is_an_error_and_no_crash(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "file.mat"
    complaints = []
    for compressed in (True, False):
        scipy.io.savemat(
            path, {"a": cells(*(rng.integers(0, 2, (9, 4)) for _ in range(4)))}, do_compression=compressed
        )
        sound = path.read_bytes()
        for _ in range(400):
            damaged = bytearray(sound)
            for place in rng.integers(0, len(damaged), rng.integers(1, 5)):
                damaged[place] = rng.integers(256)
            path.write_bytes(damaged[: rng.integers(len(damaged))] if rng.random() < 0.3 else damaged)
            try:
                read_cells(path)
            except DataError as error:
                complaints.append(str(error))
    # Damage in the numbers themselves can't be seen; most of the rest must have been.
    assert len(complaints) > 200
    assert all(str(path) in complaint for complaint in complaints)


def test_what_is_no_matlab_file(tmp_path: Path) -> None:
    path = tmp_path / "file.mat"
    for content in (b"", b"text", b"MATLAB 7.3 MAT-file".ljust(600)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"file\.mat: expected a MATLAB 5 file"):
            read_cells(path)
