"""The features of TIMIT frames: 12 cepstral coefficients, log energy, and their first derivatives."""

import numpy as np
from numpy.typing import NDArray

from kru.lab.tasks.audio import SAMPLE_RATE
from kru.sound import SoundFeatures

Array = NDArray[np.float64]

# Of samples as 16-bit integers.
STATIC = SoundFeatures.of(SAMPLE_RATE, "mfcc", floor=float(np.finfo(np.float32).eps))
FEATURES = 2 * STATIC.size


def frame_centres(frames: int) -> NDArray[np.int64]:
    """The sample in the middle of each window."""
    return STATIC.window // 2 + STATIC.hop * np.arange(frames)


def features(samples: NDArray[np.int16]) -> Array:
    """(frames, 26): 12 MFCC, log energy, then the first derivatives of these 13."""
    static = STATIC.transform(samples)
    return np.concatenate([static, derivatives(static)], axis=1)


def derivatives(values: Array) -> Array:
    """The slope in time of the line fitted to five frames: d_t = sum_{k=1,2} k (v_{t+k} - v_{t-k}) / 10.

    Before the first and after the last frame their values are repeated.
    """
    padded = np.concatenate([values[:1], values[:1], values, values[-1:], values[-1:]])
    slopes: Array = (padded[3:-1] - padded[1:-3] + 2 * (padded[4:] - padded[:-4])) / 10
    return slopes
