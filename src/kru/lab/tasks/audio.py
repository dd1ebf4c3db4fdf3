"""Samples of 16 kHz, mono, 16-bit recordings, in RIFF or NIST SPHERE files."""

import io
import wave

import numpy as np
from numpy.typing import NDArray

from kru.lab.data import DataError

SAMPLE_RATE = 16_000
LONGEST_SECONDS = 300
"""How long a recording may be; the longest of TIMIT's sample has 5.5 seconds."""
RECORDING_LIMIT = 2 * SAMPLE_RATE * LONGEST_SECONDS + 2**16
"""How many bytes the file of a recording may have: the samples and a header."""


def read_samples(data: bytes, where: str) -> NDArray[np.int16]:
    """The samples of a recording given as the bytes of its file; `where` names the file in errors."""
    if len(data) > RECORDING_LIMIT:
        raise DataError(
            f"{where}: expected at most {LONGEST_SECONDS} seconds of sound, got {len(data):,} bytes"
        )
    if data.startswith(b"NIST_1A"):
        return _read_sphere(data, where)
    if data.startswith(b"RIFF"):
        return _read_riff(data, where)
    raise DataError(
        f"{where}: expected a RIFF or NIST SPHERE recording, got a file that begins with {data[:8]!r}"
    )


def riff_bytes(samples: NDArray[np.int16]) -> bytes:
    """The bytes of a RIFF file of the samples."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


def _read_riff(data: bytes, where: str) -> NDArray[np.int16]:
    try:
        with wave.open(io.BytesIO(data)) as reader:
            count = reader.getnframes()
            _check_format(where, reader.getframerate(), reader.getnchannels(), reader.getsampwidth())
            body = reader.readframes(count)
    except (wave.Error, EOFError, RuntimeError) as error:
        raise DataError(
            f"{where}: expected a RIFF file of PCM samples ({error or 'it ends early'})"
        ) from error
    return _samples(body, "<i2", count, where)


def _read_sphere(data: bytes, where: str) -> NDArray[np.int16]:
    """A header of text, its second line its size in bytes, the others ``name -type value``; then samples."""
    lines = data[:1024].split(b"\n")
    try:
        size = int(lines[1])
        header = data[:size].decode("ascii").split("end_head")[0]
    except (IndexError, ValueError) as error:
        raise DataError(f"{where}: expected a NIST SPHERE header, got {data[:24]!r}") from error
    fields = dict(line.split(maxsplit=2)[::2] for line in header.splitlines()[2:] if len(line.split()) > 2)
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise DataError(
            f"{where}: expected plain PCM samples, got the coding {coding}; convert it with sph2pipe -f rif"
        )
    try:
        count, rate, channels, width = (
            int(fields[name]) for name in ("sample_count", "sample_rate", "channel_count", "sample_n_bytes")
        )
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{where}: the NIST SPHERE header lacks a field or has a wrong one: {error}"
        ) from error
    _check_format(where, rate, channels, width)
    order = {"01": "<i2", "10": ">i2"}.get(fields.get("sample_byte_format", ""))
    if order is None:
        raise DataError(
            f"{where}: sample_byte_format: expected 01 or 10, got {fields.get('sample_byte_format')!r}"
        )
    return _samples(data[size : size + 2 * max(count, 0)], order, count, where)


def _check_format(where: str, rate: int, channels: int, width: int) -> None:
    if (rate, channels, width) != (SAMPLE_RATE, 1, 2):
        raise DataError(
            f"{where}: expected {SAMPLE_RATE} Hz, 1 channel and 16 bits, got {rate} Hz, {channels} channels "
            f"and {8 * width} bits; convert the recording"
        )


def _samples(body: bytes, order: str, count: int, where: str) -> NDArray[np.int16]:
    if len(body) != 2 * count:
        raise DataError(f"{where}: truncated: the header promises {count:,} samples, got {len(body) // 2:,}")
    return np.frombuffer(body, order).astype(np.int16)
