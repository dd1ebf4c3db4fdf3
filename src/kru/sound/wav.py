"""Samples of WAV files."""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def read_wav(path: str | Path) -> tuple[NDArray[np.float64], int]:
    """Samples (channels, time) between -1 and 1 of an uncompressed WAV file of 8, 16, 24 or 32 bits, and the rate."""
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path}: expected an uncompressed WAV file ({error})") from error
    if len(data) == 0:
        raise ValueError(f"{path}: expected samples, got none")
    rows = data[: len(data) // (width * channels) * (width * channels)].reshape(-1, width)
    if width == 1:  # the only unsigned one
        samples = (rows[:, 0].astype(np.float64) - 128) / 128
    else:
        # The bytes of a sample, low ones first, as the upper ones of 32 bits: the sign comes out right for any width.
        full = np.zeros((len(rows), 4), dtype=np.uint8)
        full[:, 4 - width :] = rows
        samples = full.view("<i4")[:, 0] / 2.0**31
    return samples.reshape(-1, channels).T.astype(np.float64), rate
