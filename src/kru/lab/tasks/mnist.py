"""Pixel MNIST: a digit read pixel by pixel, in plain or permuted order, or row by row."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kru.lab.data import DataError, find
from kru.lab.tasks.idx import read_idx
from kru.nn.model import Sizes
from kru.training import counter
from kru.training.task import Batch, Measure, Score, SequenceTask, Split, accuracy_score, cross_entropy

Order = Literal["plain", "permuted", "rows"]

PIXELS = 28 * 28
CLASSES = 10

# The one permutation of the permuted problem is that of this seed (`counter.permutation`), in every run.
PERMUTATION_SEED = 0


def pixel_permutation() -> NDArray[np.int64]:
    """The fixed permutation: step t of the permuted problem shows pixel pixel_permutation()[t]."""
    return counter.permutation(counter.derive_key(PERMUTATION_SEED), PIXELS)


@dataclass(frozen=True)
class Mnist:
    """MNIST in `order` "plain" or "permuted", 784 steps of one pixel, or "rows", 28 steps of 28 pixels."""

    order: Order = "plain"

    @property
    def sizes(self) -> Sizes:
        return Sizes(28 if self.order == "rows" else 1, CLASSES, last_only=True)

    @property
    def label(self) -> str:
        return f"MNIST, {self.order} order" if self.order != "rows" else "MNIST, rows"

    def load(self, data_dir: str | Path | None = None) -> "MnistTask":
        if self.order not in get_args(Order):
            raise ValueError(f"order: expected one of {', '.join(get_args(Order))}, got {self.order!r}")
        return MnistTask(
            self,
            *_images_and_labels("train", data_dir),
            *_images_and_labels("t10k", data_dir),
        )


class MnistTask(SequenceTask):
    """Pixels scaled to 0 ... 1, inputs (784, B, 1) or (28, B, 28); the digit is read at the last step.

    Of the 60,000 training images the last twelfth (5,000) is for validation.
    """

    output_size = CLASSES
    last_only = True
    measure = Measure("accuracy", lower_is_better=False)

    def __init__(
        self,
        problem: Mnist,
        images: NDArray[np.uint8],
        labels: NDArray[np.uint8],
        test_images: NDArray[np.uint8],
        test_labels: NDArray[np.uint8],
    ) -> None:
        self.problem = problem
        self.input_size = 28 if problem.order == "rows" else 1
        if problem.order == "permuted":
            permutation = pixel_permutation()
            images, test_images = (np.take(part, permutation, axis=1) for part in (images, test_images))
        train = len(images) - len(images) // 12
        self._images: dict[Split, NDArray[np.uint8]] = {
            "train": images[:train],
            "valid": images[train:],
            "test": test_images,
        }
        self._labels: dict[Split, NDArray[np.int64]] = {
            "train": labels[:train].astype(np.int64),
            "valid": labels[train:].astype(np.int64),
            "test": test_labels.astype(np.int64),
        }
        commonest = np.bincount(self._labels["train"]).argmax()
        self.baseline = 100.0 * float((test_labels == commonest).mean())

    def size(self, split: Split) -> int:
        return len(self._labels[split])

    def take(self, split: Split, indices: NDArray[np.int64]) -> Batch:
        pixels = torch.from_numpy(self._images[split][indices])
        steps = pixels.reshape(len(indices), -1, self.input_size).transpose(0, 1)
        inputs = steps.to(torch.float32, memory_format=torch.contiguous_format).div_(255.0)
        return Batch(inputs, torch.from_numpy(self._labels[split][indices]))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(outputs, batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> Score:
        return accuracy_score(outputs, batch.targets)


def _images_and_labels(part: str, data_dir: str | Path | None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 784) and labels (n,)."""
    images_path = find(f"mnist/{part}-images-idx3-ubyte.gz", data_dir)
    labels_path = find(f"mnist/{part}-labels-idx1-ubyte.gz", data_dir)
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (28, 28):
        raise DataError(f"{images_path}: expected images of 28 x 28 pixels, got {images.shape[1:]}")
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path}: expected one label for each of {len(images)} images, got {len(labels)}"
        )
    if labels.size and labels.max() >= CLASSES:
        raise DataError(f"{labels_path}: expected labels 0 to 9, got {labels.max()}")
    return images.reshape(len(images), PIXELS), labels
