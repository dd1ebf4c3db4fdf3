"""Who says what in the generated corpus, whatever makes it sound."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kru.lab.tasks.speech_files import Segment


@dataclass(frozen=True)
class Voice:
    """A speaker's voice; timbre, pitch and tempo are in [0, 1)."""

    female: bool
    timbre: float
    pitch: float
    tempo: float


@dataclass(frozen=True)
class Line:
    """The words that a voice says; `key` is for whatever else is random about how it says them."""

    words: tuple[str, ...]
    voice: Voice
    key: int


@dataclass(frozen=True)
class Speech:
    """How that sounds: samples at 16 kHz, and the phones from the first sample to the last, with no gap."""

    samples: NDArray[np.int16]
    segments: list[Segment]
