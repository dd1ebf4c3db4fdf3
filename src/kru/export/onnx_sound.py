"""Spectral features of sound in ONNX; see `kru.sound.SoundFeatures` for the formulas."""

import numpy as np
from numpy.typing import NDArray

from kru.export.network import Sound
from kru.export.onnx_graph import Graph


def sound_windows(graph: Graph, sound: Sound, x: str) -> str:
    """The windows (frames, B, C, W) of samples (n, B, C)."""
    window, hop = (np.array(value, dtype=np.int64) for value in (sound.features.window, sound.features.hop))
    count = graph.op(
        "Squeeze",
        "samples",
        graph.op("Slice", "samples", graph.op("Shape", "shape", x), graph.ints(0), graph.ints(1)),
    )
    # A window begins at 0, hop, 2 hop, ... as long as it ends inside.
    last = graph.op("Sub", "last", count, graph.constant("", window - 1))
    starts = graph.op(
        "Range", "starts", graph.constant("", np.array(0, dtype=np.int64)), last, graph.constant("", hop)
    )
    inside = graph.constant("inside", np.arange(sound.features.window, dtype=np.int64))
    places = graph.op("Add", "places", graph.op("Unsqueeze", "starts", starts, graph.ints(1)), inside)
    return graph.op(
        "Transpose", "windows", graph.op("Gather", "windows", x, places, axis=0), perm=[0, 2, 3, 1]
    )


def sound_features(graph: Graph, sound: Sound, windows: str) -> str:
    """The features (..., C * D) of windows (..., C, W), those of each channel in turn."""
    features = sound.features

    def number(name: str, value: float) -> str:
        return graph.constant(name, np.array(value, dtype=np.float32))

    def table(name: str, array: NDArray[np.float64]) -> str:
        return graph.constant(name, np.ascontiguousarray(array, dtype=np.float32))

    floor = number("floor", features.floor)
    last = graph.ints(-1)
    first = graph.op("Slice", "first_sample", windows, graph.ints(0), graph.ints(1), last)
    others = graph.op("Slice", "other_samples", windows, graph.ints(0), last, last)
    before = graph.op("Concat", "samples_before", first, others, axis=-1)
    weighted = graph.op("Mul", "emphasis", before, number("preemphasis", features.preemphasis))
    z = graph.op(
        "Mul", "tapered", graph.op("Sub", "emphasised", windows, weighted), table("taper", features.taper)
    )
    # DFT takes one axis of batches: (rows, W, 1) becomes (rows, M / 2 + 1, 2).
    rows = graph.op("Reshape", "rows", z, graph.ints(-1, features.window, 1))
    length = graph.constant("", np.array(features.fft, dtype=np.int64))
    spectrum = graph.op("DFT", "spectrum", rows, length, axis=1, onesided=1)
    power = graph.op(
        "ReduceSum", "power", graph.op("Mul", "squares", spectrum, spectrum), graph.ints(-1), keepdims=0
    )
    mel = graph.op("MatMul", "mel", power, table("mel_filters", features.mel_filters.T))
    result = graph.op("Log", "log_mel", graph.op("Max", "mel", mel, floor))
    if features.kind == "mfcc":
        samples = graph.op("Reshape", "samples", windows, graph.ints(-1, features.window))
        energy = graph.op(
            "ReduceSum", "energy", graph.op("Mul", "squares", samples, samples), graph.ints(-1), keepdims=1
        )
        cepstra = graph.op("MatMul", "cepstra", result, table("cosines", features.cepstra.T))
        energy = graph.op("Log", "log_energy", graph.op("Max", "energy", energy, floor))
        result = graph.op("Concat", "features", cepstra, energy, axis=-1)
    # (frames * B * C, D) back to (frames, B, C * D), of a single window (B, C * D).
    shape = graph.op("Shape", "shape", windows)
    leading = graph.op("Slice", "leading", shape, graph.ints(0), graph.ints(-2))
    shape = graph.op("Concat", "shape", leading, graph.ints(sound.channels * features.size), axis=0)
    return graph.op("Reshape", "features", result, shape)
