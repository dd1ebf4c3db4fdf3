"""Variants of recordings: what another speaker, room or microphone might have given."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SPEED = 0.15
"""Speed and pitch change by up to this part."""
PAUSE = 0.1
"""Seconds that are at most added before the sound, and after it."""
LEVEL = 6.0
"""Decibels by which it becomes louder or softer."""
TONE = 0.4
"""Brighter or duller: y_n = x_n + t x_{n-1}, with t up to this on both sides of zero."""
NOISE = (10.0, 50.0)
"""Decibels of the sound above white noise."""


def vary(samples: Array, rate: int, generator: np.random.Generator) -> Array:
    """A recording (channels, n) at another speed, level and tone, with pauses and noise: (channels, n')."""
    count = samples.shape[1]
    speed = 1 + SPEED * generator.uniform(-1, 1)
    places = np.arange(max(1, int(count / speed))) * speed
    varied = np.stack([np.interp(places, np.arange(count), channel) for channel in samples])
    tone = TONE * generator.uniform(-1, 1)
    varied[:, 1:] += tone * varied[:, :-1]
    before, after = (int(PAUSE * rate * generator.uniform()) for _ in range(2))
    varied = np.pad(varied, ((0, 0), (before, after)))
    power = np.sqrt((varied**2).mean())
    noise = power * 10 ** (-generator.uniform(*NOISE) / 20)
    varied += noise * generator.standard_normal(varied.shape)
    varied *= 10 ** (LEVEL * generator.uniform(-1, 1) / 20)
    return varied
