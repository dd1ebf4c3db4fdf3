"""The command line: `kru COMMAND ...`."""

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from kru.lab.data import DataError
from kru.lab.spelling import did_you_mean
from kru.nn.lookup import import_from_here
from kru.training.wrong_path import is_wrong_path
from kru_command import COMMANDS, discard_output, usage

IMPORTED: list[str] = []
"""The modules that `--import` named, for processes that the command starts."""


class UsageError(Exception):
    """Arguments that make no sense; the message is one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0, 2 for bad input, 1 for other failures, 130 after Ctrl-C.

    Failures are one line on standard error; with KRU_DEBUG=1 in the environment, the traceback comes before it.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        arguments = ["version"]
    name = arguments[0]
    try:
        if name == "version":
            from kru.lab.machine import versions

            print(versions(), flush=True)
            return 0
        if name not in COMMANDS:
            near = did_you_mean(name, COMMANDS)
            raise UsageError(f"no command {name!r}{near}; expected one of {', '.join(COMMANDS)}")
        modules, rest = split_imports(arguments[1:])
        for module in modules:
            import_from_here(module, "--import")
        IMPORTED[:] = modules
        code: int = importlib.import_module(COMMANDS[name].module).run(rest)
        sys.stdout.flush()
        return code
    except (UsageError, DataError, ValueError, OverflowError) as error:
        return _fail(name, str(error) or type(error).__name__, 2)
    except BrokenPipeError:
        discard_output()
        return 0
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        message = f"{os.fsdecode(error.filename)}: {error.strerror}" if named else str(error)
        return _fail(name, message, 2 if is_wrong_path(error) else 1)
    except MemoryError as error:
        return _fail(name, f"not enough memory{f' ({error})' if str(error) else ''}", 1)
    except (RuntimeError, ModuleNotFoundError) as error:
        return _fail(name, str(error) or type(error).__name__, 1)
    except KeyboardInterrupt:
        print(f"kru {name}: interrupted", file=sys.stderr)
        return 130


def split_imports(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The modules that ``--import MODULE`` names, and the other arguments.

    >>> split_imports(["runs/mine", "--import", "models", "--split=valid", "--import=tasks"])
    (['models', 'tasks'], ['runs/mine', '--split=valid'])
    """
    modules, rest = [], []
    remaining = iter(arguments)
    for argument in remaining:
        option, given, value = argument.partition("=")
        if option != "--import":
            rest.append(argument)
            continue
        module = value if given else next(remaining, "")
        if not module or module.startswith("-"):
            raise UsageError("--import: expected the name of a module after it")
        modules.append(module)
    return modules, rest


def parse(kind: Callable[..., Any], name: str, arguments: Sequence[str], **options: Any) -> Any:
    """`tyro.cli` whose complaint is one line.

    Raises:
        UsageError: the arguments are wrong.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=f"kru {name}",
                args=list(arguments),
                config=(tyro.conf.AvoidSubcommands,),
                **options,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_complaint(complaint.getvalue())) from None


def _complaint(box: str) -> str:
    """What a message of tyro says before its second rule, its title left out, and the option that was meant.

    >>> _complaint("╭─ Value error ──╮\\n│ Too many       │\\n│ ────────────── │\\n│ See --help     │")
    'Too many'
    >>> _complaint("╭─ Options ──╮\\n│ No --sed   │\\n│ ────────── │\\n│ Perhaps:   │\\n│  --seed INT │")
    'No --sed (did you mean --seed?)'
    """
    # Where the output can't have the characters of a frame, the title is a line with a rule below it.
    paragraphs: list[list[str]] = [[]]
    for line in box.strip().splitlines():
        text = line.strip("│| ")
        if line.startswith(("╭", "╰")):
            continue
        if text and not text.strip("─-"):
            paragraphs.append([])
        else:
            paragraphs[-1].append(text)
    first = 0 if box.startswith("╭") or len(paragraphs) == 1 else 1
    meant = next(
        (
            line.split()[0]
            for paragraph in paragraphs[first + 1 :]
            if paragraph and paragraph[0].startswith("Perhaps")
            for line in paragraph
            if line.startswith("--")
        ),
        None,
    )
    return " ".join(paragraphs[first]) + (f" (did you mean {meant}?)" if meant else "")


def _fail(name: str, message: str, code: int) -> int:
    if os.environ.get("KRU_DEBUG", "0") not in ("", "0"):
        traceback.print_exc()
    print(f"kru {name}: {' '.join(message.split())}", file=sys.stderr)
    return code
