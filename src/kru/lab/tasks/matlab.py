"""Cell arrays of matrices in MATLAB 5 files: the part of the format that piano rolls use.

scipy.io.loadmat reads the whole format, but can crash the process on a damaged file; here every length is
checked before it is used.
"""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kru.lab.data import DataError

Matrix = NDArray[np.generic]

LIMIT = 2**27
"""How many bytes a file may have and unpack to; the largest collection of piano rolls has 24 MB."""
MOST_ELEMENTS = 2**19
"""How many elements a file may have; a matrix has five, the largest collection of piano rolls 5,200."""

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CELL = 1
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX = 0x0800


def read_cells(path: Path) -> dict[str, list[Matrix]]:
    """The matrices in each cell array of a file, by the array's name, in MATLAB's order.

    A file is a header of 128 bytes, which ends in the byte order, and elements: a tag of type and length,
    then data. An element of type 14 is an array (its class, dimensions, name and contents, elements
    themselves) and one of type 15 is such an element compressed by zlib. Variables that are not cell arrays
    are left out.
    """
    if path.stat().st_size > LIMIT:
        raise DataError(f"{path}: expected at most {LIMIT:,} bytes, got {path.stat().st_size:,}")
    content = memoryview(path.read_bytes())
    order = {b"IM": "<", b"MI": ">"}.get(bytes(content[126:128]))
    if order is None:
        raise DataError(
            f"{path}: expected a MATLAB 5 file (save -v7 or older), got a file without its 128-byte header"
        )
    try:
        return dict(_Reader(order).cell_arrays(content[_HEADER:]))
    except (ValueError, zlib.error) as error:
        raise DataError(
            f"{path}: expected cell arrays of matrices in a MATLAB 5 file ({error}); replace it by a sound "
            "copy"
        ) from error


class _Reader:
    """Reads elements in one byte order; anything wrong is a ValueError.

    Elements are views: a file takes the memory of its bytes and of what they unpack to, once.
    """

    def __init__(self, order: str) -> None:
        self.order = order
        self.budget = LIMIT
        self.elements_left = MOST_ELEMENTS

    def cell_arrays(self, data: memoryview) -> Iterator[tuple[str, list[Matrix]]]:
        for kind, body in self.elements(data):
            if kind == _COMPRESSED:
                # It holds one array, and no compressed element again.
                ((kind, body),) = self.elements(self.decompress(body))
            if kind == _MATRIX:
                class_, _, name, contents = self.array(body)
                if class_ == _CELL:
                    yield name, [self.matrix(element) for element in contents]

    def elements(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """The types and data of the elements that follow each other in `data`."""
        position = 0
        while position < len(data):
            first, length = self.numbers("u4", data[position : position + 8], 2)
            if first >> 16:
                # Up to four bytes of data share the tag's eight; the upper half of its first word is their
                # number.
                first, length, begin, end = first & 0xFFFF, first >> 16, position + 4, position + 8
            else:
                begin = position + 8
                end = begin + length + (0 if first == _COMPRESSED else -length % 8)
            if begin + length > min(end, len(data)):
                raise ValueError(
                    f"an element of {length} bytes begins {len(data) - begin} bytes before the end"
                )
            self.elements_left -= 1
            if self.elements_left < 0:
                raise ValueError(f"it has more than {MOST_ELEMENTS:,} elements")
            yield first, data[begin : begin + length]
            position = end

    def numbers(self, form: str, data: memoryview, count: int) -> list[int]:
        if len(data) < count * int(form[1:]):
            raise ValueError("it ends early")
        return [int(number) for number in np.frombuffer(data, self.order + form, count)]

    def decompress(self, data: memoryview) -> memoryview:
        unpacker = zlib.decompressobj()
        # One byte more than is left: a limit of 0 would be none.
        unpacked = unpacker.decompress(data, self.budget + 1)
        self.budget -= len(unpacked)
        if self.budget < 0 or not unpacker.eof:
            raise ValueError(f"compressed elements are cut off, or longer than {LIMIT:,} bytes")
        return memoryview(unpacked)

    def array(self, body: memoryview) -> tuple[int, list[int], str, list[tuple[int, memoryview]]]:
        """Class, dimensions, name and the remaining elements of an array."""
        parts = list(self.elements(body))
        if len(parts) < 3:
            raise ValueError("an array lacks its class, dimensions or name")
        (flags,) = self.numbers("u4", parts[0][1], 1)
        dimensions = self.numbers("i4", parts[1][1], len(parts[1][1]) // 4)
        if flags & _COMPLEX:
            raise ValueError("an array is complex")
        return flags & 0xFF, dimensions, bytes(parts[2][1]).decode("ascii", errors="replace"), parts[3:]

    def matrix(self, element: tuple[int, memoryview]) -> Matrix:
        kind, body = element
        if kind != _MATRIX:
            raise ValueError(f"a cell has an element of type {kind} in place of a matrix")
        class_, dimensions, _, contents = self.array(body)
        if class_ not in _NUMERIC_CLASSES or len(dimensions) != 2 or len(contents) != 1:
            raise ValueError(f"a cell has an array of class {class_} and {len(dimensions)} dimensions")
        stored, data = contents[0]
        if stored not in _NUMBERS or min(dimensions) < 0:
            raise ValueError(f"a matrix {dimensions} has numbers of type {stored}")
        form = np.dtype(self.order + _NUMBERS[stored])
        if len(data) != math.prod(dimensions) * form.itemsize:
            raise ValueError(f"a matrix {dimensions} has {len(data)} bytes")
        values: Matrix = np.frombuffer(data, form).reshape(dimensions, order="F")
        return values
