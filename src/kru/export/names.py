"""The name of an exported model, which becomes file names and identifiers."""

import re

_HEADERS = re.compile(
    "assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdarg|stdbool|"
    "stddef|stdint|stdio|stdlib|string|tgmath|time|wchar|wctype"
)


def check_name(name: str) -> None:
    """Raise unless `name` can begin an identifier and be the name of a header of one's own."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,23}", name):
        raise ValueError(
            f"name: expected a letter and at most 23 further letters, digits or underscores, got {name!r}"
        )
    if _HEADERS.fullmatch(name.lower()):
        raise ValueError(f"name: expected another name than {name!r}, whose header belongs to C itself")


def as_comment(text: str) -> str:
    """Text from a file as a part of a comment in C, which it can't end and whose lines it can't break.

    >>> as_comment('mine */ #include "x"')
    'mine include x'
    """
    return " ".join(re.sub(r"[^A-Za-z0-9._+-]", " ", text).split())[:80]
