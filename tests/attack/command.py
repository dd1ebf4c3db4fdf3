"""`kru` inside this process, and the rules that every command has to keep."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kru.lab.cli import main

from .pool import FoundError

LONGEST = 3000
"""Characters of an error message."""


@contextlib.contextmanager
def quiet() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def command(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command, which must be 0, or 2 and one line."""
    with quiet() as (out, err):
        code = main(list(arguments))
    said = err.getvalue()
    if "Traceback" in said or code not in (0, 2):
        raise FoundError(f"kru {' '.join(arguments)}: exit code {code}: {said[-2000:]}")
    if code:
        expect_line(said.rstrip("\n").rpartition("\n")[2])
    return code, out.getvalue()


def expect_line(message: str) -> None:
    """What is said of a bad file: one line, with something in it, that a terminal can show."""
    if not message.strip() or len(message) > LONGEST:
        raise FoundError(f"a message of {len(message)} characters: {message[:300]!r}")


_folder = ""
_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class",
              "socket.connect")  # fmt: skip


def forbid_harm(folder: Path) -> None:
    """From now on this process may neither run programs, unpickle nor write outside the folder."""
    global _folder
    first = not _folder
    _folder = str(folder.resolve())
    if first:
        sys.dont_write_bytecode = True
        sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN:
        # Not an Exception, which somebody could catch.
        raise HarmError(f"{event} {arguments!r}")
    if event == "open" and isinstance(arguments[0], str | bytes) and _writes(arguments):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith((_folder, "/dev/", "/proc/")):
            raise HarmError(f"writes {path}")


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


class HarmError(BaseException):
    """Something that no file may cause."""
