"""Sounds as an estimator reads them: samples go in, spectral features come out."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kru.estimators.data import Cases, case_arrays, stack
from kru.sound import SoundFeatures, vary
from kru.training.plain_json import NUMBER, Shape, mismatches

Samples = list[NDArray[np.float64]]


class Sounds(NamedTuple):
    """The features of sounds, of their variants (all sounds once, then all again), and the channels of samples."""

    cases: Cases
    variants: Cases | None
    channels: int


def sound_features(features: Any, sample_rate: Any) -> SoundFeatures | None:
    """The features that an estimator's settings ask for; None for none."""
    if features is None:
        if sample_rate is not None:
            raise ValueError(f"sample_rate: expected None without features, got {sample_rate!r}")
        return None
    if sample_rate is None:
        raise ValueError("sample_rate: expected the samples in a second, got None")
    settings = dict(features) if isinstance(features, dict) else {"kind": features}
    try:
        return SoundFeatures.of(sample_rate, **settings)
    except TypeError:
        known = "kind, window, hop, filters, coefficients, preemphasis, lifter, floor"
        raise ValueError(f"features: expected some of {known}, got {', '.join(map(str, settings))}") from None


def read_sounds(X: Any, features: SoundFeatures, *, variants: int = 0, generator: Any = None) -> Sounds:
    """The features of sounds in any form that `kru.estimators.data.read_cases` takes.

    Args:
        variants: how many of each sound to make as well.
        generator: a `numpy.random.RandomState`, for them.
    """
    if not isinstance(variants, int) or variants < 0:
        raise ValueError(f"augment: expected an integer of at least 0, got {variants!r}")
    names, arrays = case_arrays(X)
    for index, array in enumerate(arrays):
        if array.shape[1] < features.window:
            raise ValueError(
                f"X: expected at least {features.window} samples, one window, got {array.shape[1]} in case "
                f"{names[index] if names else index}"
            )
    cases = stack([features.of_channels(array) for array in arrays], names)
    return Sounds(
        cases,
        stack(_variants(arrays, features, variants, generator)) if variants else None,
        arrays[0].shape[0],
    )


def _variants(arrays: Samples, features: SoundFeatures, count: int, generator: Any) -> Samples:
    seed = int(generator.randint(2**31 - 1))
    made = []
    for round_ in range(count):
        for index, array in enumerate(arrays):
            # Each has a generator of its own: more variants leave the first ones as they are.
            varied = vary(array, features.rate, np.random.default_rng([seed, round_, index]))
            missing = features.window - varied.shape[1]
            made.append(features.of_channels(np.pad(varied, ((0, 0), (0, max(0, missing))))))
    return made


def stored_features(stored: Any) -> SoundFeatures | None:
    """The features in a file of an estimator; None in one without."""
    if stored is None:
        return None
    shape: dict[str, Shape] = {
        "rate": int,
        "kind": str,
        "window": int,
        "hop": int,
        "filters": int,
        "coefficients": int,
        "preemphasis": NUMBER,
        "lifter": int,
        "floor": NUMBER,
    }
    if not isinstance(stored, dict) or set(stored) != set(shape) or mismatches(stored, shape):
        raise ValueError("sound: missing or of another type")
    return SoundFeatures(**stored)
