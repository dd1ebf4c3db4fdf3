import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from kru.lab.data import DataError
from kru.lab.tasks import Mnist
from kru.lab.tasks.idx import read_idx
from kru.lab.tasks.mnist import pixel_permutation


def test_splits_and_shapes(mnist_directory: Path) -> None:
    task = Mnist().load(mnist_directory)
    assert [task.size(split) for split in ("train", "valid", "test")] == [110, 10, 20]
    assert (task.input_size, task.output_size, task.last_only) == (1, 10, True)
    batch = task.eval_batches("valid", 4)[2]
    assert batch.inputs.shape == (784, 2, 1)
    assert batch.targets.tolist() == [8, 9]
    images = read_idx(mnist_directory / "mnist/train-images-idx3-ubyte.gz", 3)
    assert torch.equal(batch.inputs[:, 1, 0], torch.from_numpy(images[119].ravel() / np.float32(255)))


def test_orders_show_the_same_pixels(mnist_directory: Path) -> None:
    plain, permuted, rows = (
        Mnist(order).load(mnist_directory).eval_batches("test", 20)[0].inputs
        for order in ("plain", "permuted", "rows")
    )
    assert torch.equal(permuted, plain[torch.from_numpy(pixel_permutation())])
    assert rows.shape == (28, 20, 28)
    assert torch.equal(rows.transpose(0, 1).reshape(20, 784).T, plain[..., 0])
    for inputs in (plain, permuted, rows):
        assert inputs.is_contiguous()


def test_the_permutation_never_changes() -> None:
    permutation = pixel_permutation()
    assert sorted(permutation.tolist()) == list(range(784))
    digest = hashlib.sha256(permutation.astype("<i8").tobytes()).hexdigest()
    assert digest == "8dc65a0635f8bf3b43503d39623c65efda9146610979292823525dc142c53165"


def test_score(mnist_directory: Path) -> None:
    task = Mnist().load(mnist_directory)
    batch = task.eval_batches("test", 20)[0]
    outputs = torch.nn.functional.one_hot(batch.targets, 10).float()
    outputs[:5] = outputs[:5].roll(1, dims=1)
    assert task.score(outputs, batch).value == 75.0
    assert task.baseline == 10.0
    assert not task.measure.lower_is_better


def zipped(content: bytes) -> bytes:
    """Without the time, which would be in the name of a test: each worker of pytest-xdist would have its own."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not gzip", "expected a whole gzip file"),
        (zipped(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + b"12345678"), "promises 9 bytes, got 8"),
        (zipped(bytes([0, 0, 8, 1, 0, 0, 0, 2]) + b"123"), "promises 2 bytes, got more"),
        (zipped(bytes([0, 0, 13, 1, 0, 0, 0, 2]) + b"12"), "header of 00 00 0d 01"),
        (zipped(b""), "header of nothing"),
        (
            zipped(bytes([0, 0, 8, 1, 255, 255, 255, 255]) + b"12"),
            "4,294,967,295 bytes, expected at most",
        ),
        (zipped(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + b"123456789")[:-12], "expected a whole gzip file"),
    ],
)
def test_broken_idx_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, 1)
    assert str(path) in str(caught.value)
    assert "kru data fetch mnist" in str(caught.value)


def test_bad_order() -> None:
    with pytest.raises(ValueError, match="order: expected one of plain, permuted, rows, got 'spiral'"):
        Mnist("spiral").load()  # type: ignore[arg-type]


def test_real_digits(real_data: Path) -> None:
    task = Mnist().load(real_data)
    assert [task.size(split) for split in ("train", "valid", "test")] == [55_000, 5_000, 10_000]
    counts = np.zeros(10, int)
    pixels = []
    for split in ("train", "valid"):
        for batch in task.eval_batches(split, 5000):
            counts += np.bincount(batch.targets, minlength=10)
            pixels.append(batch.inputs.double())
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    everything = torch.cat(pixels, dim=1)
    assert round(everything.mean().item(), 4) == 0.1307
    assert round(everything.std().item(), 4) == 0.3081
    test_counts = np.bincount(task.eval_batches("test", 10_000)[0].targets)
    assert test_counts.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert task.baseline == pytest.approx(11.35)
