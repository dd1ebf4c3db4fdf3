"""The constants of a generated C file."""

from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

from numpy.typing import NDArray

from kru.export.int8 import gains, to_int8
from kru.export.network import Array


@dataclass(frozen=True)
class Matrix:
    """A stored matrix, and how C reads it. Rows are numbered by expressions in C.

    Attributes:
        name: of the array; the scales of integers are in the array NAME_scale.
        columns: D.
        is_int8: whether the entries are integers.
        rounds: whether vectors are rounded to integers too before a product with them, by `prelude`.
    """

    name: str
    columns: int
    is_int8: bool
    rounds: bool = False

    def entry(self, row: str, column: str) -> str:
        """One entry."""
        place = row if self.columns == 1 else f"{_grouped(row)} * {self.columns}"
        place = place if column == "0" else f"{place} + {column}"
        if self.is_int8:
            return f"{self.name}_scale[{row}] * (float){self.name}[{place}]"
        return f"{self.name}[{place}]"

    def times(self, row: str, x: str) -> str:
        """The product of a row with a vector."""
        if self.columns == 1:
            return f"{self.entry(row, '0')} * {x}[0]"
        if self.rounds:
            place = f"{self.name} + {_grouped(row)} * {self.columns}"
            return f"{self.name}_scale[{row}] * q_scale * (float)dot_integers({place}, q, {self.columns})"
        call = f"({self.name} + {_grouped(row)} * {self.columns}, {x}, {self.columns})"
        return f"{self.name}_scale[{row}] * dot_int8{call}" if self.is_int8 else f"dot{call}"

    def prelude(self, x: str) -> list[str]:
        """The statements that `times` needs before it, once for all rows."""
        if not self.rounds:
            return []
        return [f"signed char q[{self.columns}];", f"const float q_scale = rounded({x}, q, {self.columns});"]


@dataclass
class Weights:
    """Arrays in the order in which they are declared, and their bytes.

    Args:
        int8: whether large matrices are stored as integers.
        activations: whether vectors are rounded to integers before a product with one of these.
    """

    int8: bool
    activations: bool = False
    declarations: list[str] = field(default_factory=list)
    size: int = 0

    def vector(self, name: str, array: NDArray[Any]) -> str:
        """An array of float, or of integers of 8 or 16 bits; its name."""
        flat = array.reshape(-1)
        kind = {"int8": "signed char", "int16": "short"}.get(flat.dtype.name, "float")
        # The shortest digits that read back as the same number.
        numbers = ", ".join(map(str, flat.tolist()) if kind != "float" else (f"{value!s}f" for value in flat))
        body = fill(numbers, 118, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        self.declarations.append(f"static const {kind} {name}[{flat.size}] = {{\n{body}\n}};")
        self.size += flat.nbytes
        return name

    def matrix(self, name: str, array: Array) -> Matrix:
        """A matrix, as integers if that is wanted and worth it."""
        is_int8 = self.int8 and gains(array)
        if is_int8:
            values, scale = to_int8(array)
            self.vector(f"{name}_scale", scale)
            self.vector(name, values)
        else:
            self.vector(name, array)
        return Matrix(name, array.shape[1], is_int8, is_int8 and self.activations)


def _grouped(expression: str) -> str:
    return expression if expression.isidentifier() or expression.isdigit() else f"({expression})"
