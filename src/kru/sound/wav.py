"""Samples of WAV files."""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


def read_wav(path: str | Path) -> tuple[NDArray[np.float64], int]:
    """Samples (channels, time) between -1 and 1 of an uncompressed WAV file, and the samples in a second.

    The file has integers of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits.
    """
    try:
        samples, rate = _parse(Path(path).read_bytes())
    except (ValueError, struct.error) as error:
        raise ValueError(f"{path}: expected an uncompressed WAV file ({error})") from error
    if samples.shape[1] == 0:
        raise ValueError(f"{path}: expected samples, got none")
    if not np.isfinite(samples).all():
        raise ValueError(f"{path}: expected finite samples, got others")
    return samples, rate


def _parse(content: bytes) -> tuple[NDArray[np.float64], int]:
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError("it does not begin with RIFF and WAVE")
    chunks = dict(_chunks(content))
    if b"fmt " not in chunks or b"data" not in chunks:
        raise ValueError("it has no chunks fmt and data")
    form = chunks[b"fmt "]
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if kind == EXTENSIBLE and len(form) >= 26:
        [kind] = struct.unpack_from("<H", form, 24)
    if channels == 0 or rate == 0:
        raise ValueError(f"{channels} channels at {rate} Hz")
    if (kind, bits) not in ((PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32), (FLOAT, 64)):
        raise ValueError(f"format {kind} with {bits} bits")
    width, data = bits // 8, chunks[b"data"]
    whole = len(data) // (width * channels) * (width * channels)
    return _samples(data[:whole], kind, width).reshape(-1, channels).T.astype(np.float64), rate


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and contents of the chunks; the last one may be cut off, as a recording that was broken off leaves it."""
    place = 12
    while place + 8 <= len(content):
        [size] = struct.unpack_from("<I", content, place + 4)
        yield content[place : place + 4], content[place + 8 : place + 8 + size]
        place += 8 + size + size % 2


def _samples(data: bytes, kind: int, width: int) -> NDArray[np.float64]:
    if kind == FLOAT:
        return np.frombuffer(data, dtype=f"<f{width}").astype(np.float64)
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    if width == 1:  # the only unsigned one
        return (rows[:, 0].astype(np.float64) - 128) / 128
    # The bytes of a sample, low ones first, as the upper ones of 32 bits: the sign comes out right for any width.
    full = np.zeros((len(rows), 4), dtype=np.uint8)
    full[:, 4 - width :] = rows
    return full.view("<i4")[:, 0].astype(np.float64) / 2.0**31
