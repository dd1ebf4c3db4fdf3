"""What is exported: a model as plain arrays, whatever module it came from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kru.ops.scan.cells import CELLS
from kru.sound import SoundFeatures

Array = NDArray[np.float32]
Matrix = NDArray[np.float32] | NDArray[np.complex64]


@dataclass(frozen=True)
class Recurrence:
    """One layer in one direction: a cell of `kru.ops.scan`, with G gates and states of S values.

    Attributes:
        cell: one of `kru.ops.scan.cells.CELLS`.
        nonlinearity: of the elman cell.
        is_complex: whether states are N real parts followed by N imaginary parts, S = 2N; else S = N.
        reverse: whether it runs from the last step to the first.
        weight: the input map U, (G * S, D).
        terms: for each gate the terms of its recurrent matrix, a sum of Kronecker products (mostly of one): the
            factors (P_f, Q_f) of each, real or complex, with the same shapes in all.
        bias: (G * S,); with modReLU (N,); or none.
        recurrent_bias: (N,), of the gru, or none.
        initial: the learned h (S,) before the first step, or none for zeros.
        leak: of the elman cell, a in h + a (sigma(...) - h), (S,); or none for 1.
    """

    cell: str
    nonlinearity: str
    is_complex: bool
    reverse: bool
    weight: Array
    terms: tuple[tuple[tuple[Matrix, ...], ...], ...]
    bias: Array | None
    recurrent_bias: Array | None
    initial: Array | None
    leak: Array | None = None

    @property
    def units(self) -> int:
        """N."""
        return prod(factor.shape[0] for factor in self.terms[0][0])

    @property
    def gates(self) -> int:
        """G."""
        return len(self.terms)

    @property
    def state_size(self) -> int:
        """S."""
        return self.units * (2 if self.is_complex else 1)

    @property
    def states(self) -> tuple[str, ...]:
        """What is carried from step to step."""
        return CELLS[self.cell].states


@dataclass(frozen=True)
class Affine:
    """y = V x + d, V (C, S) and d (C,) or none."""

    weight: Array
    bias: Array | None


@dataclass(frozen=True)
class Scaling:
    """What the first layer reads of D values x_t, in this order, with D values each::

    (x_t - mean) / scale
    (x_t - x_{t-1}) / change              if there is `change`; 0 at the first step
    1 where x_t is NaN, 0 elsewhere       with `mask`, and then 0 wherever a NaN would come out above
    """

    mean: Array
    scale: Array
    change: Array | None = None
    mask: bool = False

    @property
    def size(self) -> int:
        """How many values the first layer reads."""
        return len(self.mean) * (1 + (self.change is not None) + self.mask)


@dataclass(frozen=True)
class Sound:
    """Features of sound between the samples of `channels` channels and the scaling: those of each channel in turn."""

    features: SoundFeatures
    channels: int


@dataclass(frozen=True)
class Network:
    """Layers of recurrences, one or two (the second in reverse) in each, and what is around them.

    Attributes:
        origin: what the model is, for people.
        layers: from the input to the output.
        symbols: whether the input is integers: rows of `embedding`, or columns of the first layer's U.
        batch_first: whether sequences are (B, T, ...) instead of (T, B, ...).
        embedding: (symbols, D), or none.
        sound: the features that are computed of samples, or none.
        scaling: of the input or its features, or none.
        all_layers: whether what is read are the states of all layers, one after the other, instead of the last one's.
        reads_input: whether what the first layer reads is read as well, after the states.
        pooling: what the head reads of it: "all" steps, the "last" one, the "mean" over time, or "moments", the mean
            followed by the standard deviation.
        head: affine maps and names of activations, in the order in which they act: "relu", "tanh", "sigmoid",
            "gelu", "softmax" and "log_softmax".
        labels: the names of the outputs; of a single output the names of its two sides; or none.
        vocabulary: what the symbols of the input stand for; or none.
    """

    origin: str
    layers: tuple[tuple[Recurrence, ...], ...]
    symbols: bool
    batch_first: bool
    embedding: Array | None = None
    sound: Sound | None = None
    scaling: Scaling | None = None
    all_layers: bool = False
    reads_input: bool = False
    pooling: str = "all"
    head: tuple[Affine | str, ...] = ()
    labels: tuple[str, ...] = ()
    vocabulary: tuple[int | str, ...] = ()

    @property
    def last_only(self) -> bool:
        """Whether a sequence has one output."""
        return self.pooling != "all"

    @property
    def threshold(self) -> float:
        """Where a single output changes its label."""
        return 0.5 if self.head and self.head[-1] == "sigmoid" else 0.0

    @property
    def features_size(self) -> int:
        """Values of a step that are pooled and read: states, and perhaps inputs."""
        layers = self.layers if self.all_layers else self.layers[-1:]
        states = sum(direction.state_size for layer in layers for direction in layer)
        return states + (int(self.first.weight.shape[1]) if self.reads_input else 0)

    @property
    def read_size(self) -> int:
        """Values that the head reads."""
        return self.features_size * (2 if self.pooling == "moments" else 1)

    @property
    def first(self) -> Recurrence:
        return self.layers[0][0]

    @property
    def is_bidirectional(self) -> bool:
        return len(self.layers[0]) > 1

    @property
    def input_size(self) -> int:
        """Features of the input, the number of symbols, or the channels of a sound."""
        if self.sound is not None:
            return self.sound.channels
        if self.scaling is not None:
            return len(self.scaling.mean)
        return int(self.first.weight.shape[1] if self.embedding is None else self.embedding.shape[0])

    @property
    def carried(self) -> dict[str, int]:
        """What goes from step to step beside the states of the layers, with its size.

        The `mean` of what is read so far, the sum of its `squares` around that mean, the input of the step `before`,
        and the `count` of steps.
        """
        sizes: dict[str, int] = {}
        if self.pooling in ("mean", "moments"):
            sizes["mean"] = self.features_size
        if self.pooling == "moments":
            sizes["squares"] = self.features_size
        if self.scaling is not None and self.scaling.change is not None:
            sizes["before"] = len(self.scaling.mean)
        return {**sizes, "count": 1} if sizes else {}

    @property
    def output_size(self) -> int:
        sizes = [step.weight.shape[0] for step in self.head if isinstance(step, Affine)]
        return int(sizes[-1]) if sizes else self.read_size


def merge_small_factors(factors: Sequence[Matrix], largest: int = 16) -> tuple[Matrix, ...]:
    """The same Kronecker product with neighbouring factors multiplied out, up to `largest` rows and columns.

    For runtimes in which every operation has a price of its own, far above the arithmetic of a 2 x 2 factor.

    >>> [factor.shape for factor in merge_small_factors([np.eye(2, dtype=np.float32)] * 9)]
    [(16, 16), (16, 16), (2, 2)]
    """
    groups: list[list[Matrix]] = [[factors[0]]]
    for factor in factors[1:]:
        sides = [prod(f.shape[side] for f in [*groups[-1], factor]) for side in (0, 1)]
        if max(sides) <= largest:
            groups[-1].append(factor)
        else:
            groups.append([factor])
    return tuple(reduce(np.kron, group) for group in groups)


def require_one_direction(network: Network, what: str) -> None:
    """Raise for a model that reads its input from both ends."""
    if network.is_bidirectional:
        raise ValueError(f"{what}: expected a model with one direction, got a bidirectional one: {NO_STREAM}")


def write_first_state(network: Network, path: Path) -> None:
    """Write the h (layers, S) before the first step as JSON, where it is not zero but learned."""
    if network.first.initial is not None:
        rows = [layer[0].initial for layer in network.layers]
        path.write_text(json.dumps([row.tolist() for row in rows if row is not None]), encoding="utf-8")


def write_labels(network: Network, path: Path) -> None:
    """Write the labels as a JSON list, where there are any."""
    if network.labels:
        path.write_text(json.dumps(network.labels), encoding="utf-8")


def write_vocabulary(network: Network, path: Path) -> None:
    """Write what the symbols of the input stand for as a JSON list, where that is known."""
    if network.vocabulary:
        path.write_text(json.dumps(network.vocabulary), encoding="utf-8")


NO_STREAM = "its second direction begins at the end of the sequence, which a stream has not seen yet"
