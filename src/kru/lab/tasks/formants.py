"""Speech of the generated corpus by simple signals: each phone is a few sines, or noise, of its own."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kru.lab.tasks.audio import SAMPLE_RATE
from kru.lab.tasks.phones import SILENCE
from kru.lab.tasks.speech_files import Segment
from kru.lab.tasks.voices import Line, Speech, Voice
from kru.training import counter

# How the letters are pronounced, one phone each.
_SPOKEN = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz",
        [
            "ae",
            "b",
            "k",
            "d",
            "eh",
            "f",
            "g",
            "hh",
            "ih",
            "jh",
            "k",
            "l",
            "m",
            "n",
            "ow",
            "p",
            "kcl",
            "r",
            "s",
            "t",
            "ah",
            "v",
            "w",
            "sh",
            "y",
            "z",
        ],
        strict=True,
    )
)
_NOISY = ("f", "hh", "jh", "s", "sh", "v", "z")
_SILENT = (SILENCE, "pau", "kcl")
_FORMANTS = 0x666F726D


def speak(lines: Sequence[Line]) -> list[Speech]:
    """Spell the lines: a phone for each letter, a pause between words, silence at both ends."""
    return [_speak(line) for line in lines]


def _speak(line: Line) -> Speech:
    spelt = [_SPOKEN.get(letter, "pau") for letter in " ".join(line.words)]
    phones = [SILENCE, *spelt, SILENCE]
    draws = counter.uniform(counter.random_words(line.key, np.arange(len(phones))))
    seconds = (0.05 + 0.06 * draws) * (1.2 - 0.4 * line.voice.tempo)
    lengths = (seconds * SAMPLE_RATE).astype(np.int64)
    ends = lengths.cumsum().tolist()
    begins = [0, *ends[:-1]]
    noise = 2 * counter.uniform(counter.random_words(line.key ^ 1, np.arange(ends[-1]))) - 1
    sound = np.concatenate(
        [
            _sound(phone, noise[begin:end], line.voice)
            for begin, end, phone in zip(begins, ends, phones, strict=True)
        ]
    )
    samples = (4000 * sound + 40 * noise).astype(np.int16)
    return Speech(samples, [Segment(*segment) for segment in zip(begins, ends, phones, strict=True)])


def _sound(phone: str, noise: NDArray[np.float32], voice: Voice) -> NDArray[np.float64]:
    """Three sines at the phone's formants, beating at the voice's pitch, or noise of one band."""
    if phone in _SILENT:
        return np.zeros(len(noise))
    key = counter.derive_key(_FORMANTS, *phone.encode())
    low, middle, high = counter.uniform(counter.random_words(key, np.arange(3)))
    tract = (1.15 if voice.female else 1.0) * (0.95 + 0.1 * voice.timbre)
    formants = tract * np.array([250 + 600 * low, 900 + 1400 * middle, 2400 + 1000 * high])
    time = np.arange(len(noise)) / SAMPLE_RATE
    pitch = (180 if voice.female else 100) * (0.9 + 0.2 * voice.pitch)
    sines = np.sin(2 * np.pi * formants[:, None] * time) * np.array([[1.0], [0.6], [0.3]])
    if phone in _NOISY:
        carrier = noise * np.sin(2 * np.pi * (formants[2] + 1500) * time)
    else:
        carrier = sines.sum(axis=0) * (0.6 + 0.4 * np.cos(2 * np.pi * pitch * time))
    sound: NDArray[np.float64] = carrier * np.sqrt(np.hanning(len(noise)))
    return sound
