"""WAV files of other programs; tests/estimators/test_files.py has those of Python's own module."""

import struct

import numpy as np
import pytest
import scipy.io.wavfile

from kru.sound import read_wav


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int32, np.uint8])
def test_files_of_scipy(dtype, tmp_path) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, size=(50, 2))
    unit = 1.0 if np.dtype(dtype).kind == "f" else 2.0 ** (8 * np.dtype(dtype).itemsize - 1)
    written = (values * unit + (128 if dtype is np.uint8 else 0)).astype(dtype)
    scipy.io.wavfile.write(tmp_path / "a.wav", 8000, written)
    samples, rate = read_wav(tmp_path / "a.wav")
    assert rate == 8000
    expected = (written.astype(np.float64) - (128 if dtype is np.uint8 else 0)) / unit
    np.testing.assert_array_equal(samples, expected.T)


def wav(form: bytes, data: bytes, *, before: bytes = b"", size: int | None = None) -> bytes:
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + before
    chunks += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


PLAIN = struct.pack("<HHIIHH", 1, 1, 8000, 16_000, 2, 16)
EXTENSIBLE = struct.pack("<HHIIHHHHIH14s", 0xFFFE, 1, 8000, 16_000, 2, 16, 22, 16, 4, 1, b"")
TWO = struct.pack("<2h", 16_384, -8192)


@pytest.mark.parametrize(
    "content",
    [
        wav(PLAIN, TWO),
        wav(EXTENSIBLE, TWO),
        wav(PLAIN, TWO, before=b"LIST" + struct.pack("<I", 3) + b"abc\0"),
        wav(PLAIN, TWO + b"\1", size=0xFFFFFFFF),
    ],
    ids=["plain", "extensible", "odd chunk before", "stream that was cut off"],
)
def test_other_headers(content: bytes, tmp_path) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    assert read_wav(tmp_path / "a.wav")[0].tolist() == [[0.5, -0.25]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it does not begin with RIFF and WAVE"),
        (wav(PLAIN, b""), "expected samples, got none"),
        (wav(PLAIN, TWO)[:30], "it has no chunks fmt and data"),
        (wav(b"\1\0", TWO), "unpack_from requires"),
        (wav(PLAIN[:2] + b"\0\0" + PLAIN[4:], TWO), "0 channels at 8000 Hz"),
        (wav(b"\2" + PLAIN[1:], TWO), "format 2 with 16 bits"),
        (wav(PLAIN[:14] + b"\x0c\0", TWO), "format 1 with 12 bits"),
        (wav(b"\3\0" + PLAIN[2:14] + b"\x20\0", struct.pack("<f", np.inf)), "expected finite samples"),
    ],
)
def test_files_that_cannot_be_read(content: bytes, message: str, tmp_path) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.wav: .*{message}"):
        read_wav(tmp_path / "a.wav")
