"""Small generated files in the formats of the real data."""

import gzip
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from kru.lab.data import DATASETS


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """The tensors here are small: on a busy machine threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], None]:
    """Take the files of a data set as they are in a directory for the right ones."""

    def register_files(name: str, directory: Path) -> None:
        files = []
        for file in DATASETS[name].files:
            content = (directory / file.path).read_bytes()
            files.append(replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest()))
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], files=tuple(files)))

    return register_files


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def mnist_directory(tmp_path: Path, register: Callable[[str, Path], None]) -> Path:
    """120 + 20 images of noise; image n has the label n % 10."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count in (("train", 120), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx_bytes(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx_bytes(np.arange(count) % 10))
    register("mnist", tmp_path)
    return tmp_path


@pytest.fixture
def ptb_directory(tmp_path: Path, register: Callable[[str, Path], None]) -> Path:
    """Three texts of random words in the Penn Treebank's form."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "ptb"
    folder.mkdir()
    words = ["no", "it", "was", "<unk>", "N", "years", "black", "quiz"]
    for split, lines in (("train", 200), ("valid", 17), ("test", 23)):
        sentences = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(lines)]
        (folder / f"ptb.{split}.txt").write_text("".join(f" {sentence} \n" for sentence in sentences))
    register("ptb", tmp_path)
    return tmp_path


def write_rolls(path: Path, sizes: dict[str, list[int]]) -> None:
    rng = np.random.default_rng(0)
    cells = {}
    for name, lengths in sizes.items():
        cells[name] = np.empty((1, len(lengths)), object)
        for n, length in enumerate(lengths):
            cells[name][0, n] = (rng.random((length, 88)) < 0.05).astype(np.uint8)
    scipy.io.savemat(path, cells, do_compression=True)


@pytest.fixture
def music_directory(tmp_path: Path, register: Callable[[str, Path], None]) -> Path:
    folder = tmp_path / "music"
    folder.mkdir()
    sizes = {"traindata": [7, 12, 3, 9, 12], "validdata": [5, 5], "testdata": [4, 11, 6]}
    write_rolls(folder / "JSB_Chorales.mat", sizes)
    register("jsb", tmp_path)
    return tmp_path
