"""JSON from files that anyone may have written, checked before it is used."""

import json
import sys
from collections.abc import Mapping
from types import UnionType
from typing import Any

Shape = type | UnionType | list[Any] | Mapping[str, Any]
"""What a value has to be: of a type; a list of values of one shape; a table with at least these entries."""

NUMBER = float | int


def parse_json(data: bytes | str) -> Any:
    """The value that a JSON text is, with numbers that floats can hold and text that can be written again.

    Raises:
        ValueError: it is another text, or one nested too deeply.

    >>> parse_json(b'{"step": 3}')
    {'step': 3}
    >>> parse_json("1" + "0" * 400)
    Traceback (most recent call last):
    ValueError: expected numbers up to 1.8e+308, got one with 401 digits
    """
    try:
        value = json.loads(data, parse_int=_whole)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(str(error)) from error
    return value


def mismatches(values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> list[str]:
    """The keys of `shapes` whose value is missing or of another shape.

    >>> mismatches({"seed": "one", "curve": [1, 2]}, {"seed": int, "curve": [int], "machine": {"cores": int}})
    ['seed', 'machine']
    """
    return [key for key, shape in shapes.items() if key not in values or not _has_shape(values[key], shape)]


def _has_shape(value: Any, shape: Shape) -> bool:
    if isinstance(shape, Mapping):
        return isinstance(value, dict) and not mismatches(value, shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_has_shape(entry, shape[0]) for entry in value)
    return isinstance(value, shape)


def _whole(digits: str) -> int:
    # `float` gives infinity where `int` would give a number that no float can hold.
    if abs(float(digits)) > sys.float_info.max:
        raise ValueError(
            f"expected numbers up to {sys.float_info.max:.1e}, got one with {len(digits.lstrip('-'))} digits"
        )
    return int(digits)
