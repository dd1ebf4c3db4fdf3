import io
import wave

import numpy as np
import pytest

from kru.lab.data import DataError
from kru.lab.tasks.audio import read_samples, riff_bytes

SAMPLES = np.array([0, 1, -1, 32767, -32768, 257], np.int16)


def sphere_bytes(order: str = "01", size: int = 1024, **changes: str) -> bytes:
    fields = {
        "channel_count": "-i 1",
        "sample_count": f"-i {len(SAMPLES)}",
        "sample_rate": "-i 16000",
        "sample_n_bytes": "-i 2",
        "sample_byte_format": f"-s2 {order}",
    } | changes
    lines = ["NIST_1A", f"{size:7}", *(f"{name} {value}" for name, value in fields.items() if value)]
    header = ("\n".join(lines) + "\nend_head\n").encode().ljust(size)
    return header + SAMPLES.astype("<i2" if order == "01" else ">i2").tobytes()


@pytest.mark.parametrize("order", ["01", "10"])
@pytest.mark.parametrize("size", [1024, 2048])
def test_sphere(order: str, size: int) -> None:
    assert read_samples(sphere_bytes(order, size), "file").tolist() == SAMPLES.tolist()


def test_riff() -> None:
    assert read_samples(riff_bytes(SAMPLES), "file").tolist() == SAMPLES.tolist()


def wav_of(rate: int, channels: int, width: int) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as writer:
        writer.setframerate(rate)
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.writeframes(bytes(24))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a RIFF or NIST SPHERE recording"),
        (b"ID3 something", "expected a RIFF or NIST SPHERE recording"),
        (riff_bytes(SAMPLES)[:-2], "truncated: the header promises 6 samples, got 5"),
        (riff_bytes(SAMPLES)[:20], "expected a RIFF file of PCM samples"),
        (b"RIFF", "expected a RIFF file of PCM samples"),
        (wav_of(8000, 1, 2), "got 8000 Hz, 1 channels and 16 bits"),
        (wav_of(16000, 2, 2), "got 16000 Hz, 2 channels and 16 bits"),
        (wav_of(16000, 1, 1), "got 16000 Hz, 1 channels and 8 bits"),
        (b"NIST_1A", "expected a NIST SPHERE header"),
        (b"NIST_1A\nmany\n", "expected a NIST SPHERE header"),
        (sphere_bytes()[:-1], "truncated: the header promises 6 samples, got 5"),
        (sphere_bytes(sample_count=""), "lacks a field or has a wrong one: 'sample_count'"),
        (sphere_bytes(sample_count="-i six"), "lacks a field or has a wrong one"),
        (sphere_bytes(sample_count="-i -4"), "truncated"),
        (sphere_bytes(sample_rate="-i 8000"), "got 8000 Hz"),
        (sphere_bytes(sample_byte_format=""), "sample_byte_format: expected 01 or 10, got None"),
        (
            sphere_bytes(sample_coding="-s26 pcm,embedded-shorten-v2.00"),
            "got the coding pcm,embedded-shorten",
        ),
    ],
)
def test_broken_recordings(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^sx1.wav: .*{message}"):
        read_samples(content, "sx1.wav")
