"""The idx format of the MNIST files: big-endian sizes, then unsigned bytes, gzipped."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kru.lab.data import DataError

LIMIT = 2**26
"""How many bytes a file may unpack to; the largest of MNIST has 47 million."""


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes in a gzipped idx file, which must have the given number of dimensions.

    The header is two zero bytes, 8 for unsigned bytes, the number of dimensions, and each size as four bytes.
    """
    advice = "replace it by a sound copy (`kru data fetch mnist`)"
    try:
        with gzip.open(path, "rb") as stream:
            header = stream.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, 8, dimensions]):
                raise DataError(
                    f"{path}: expected an idx file of unsigned bytes with {dimensions} dimensions, got a "
                    f"header of {header[:4].hex(' ') or 'nothing'}; {advice}"
                )
            shape = tuple(int(size) for size in np.frombuffer(header, ">u4", dimensions, 4))
            expected = math.prod(shape)
            if expected > LIMIT:
                raise DataError(
                    f"{path}: the header promises {expected:,} bytes, expected at most {LIMIT:,}; {advice}"
                )
            data = stream.read(expected + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a whole gzip file ({error}); {advice}") from error
    if len(data) != expected:
        raise DataError(
            f"{path}: the header promises {expected:,} bytes, got "
            f"{'more' if len(data) > expected else f'{len(data):,}'}; {advice}"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)
