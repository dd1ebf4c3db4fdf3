"""The tasks by the names that recipes give them.

A task of your own is a frozen dataclass of settings with `sizes`, `label` and `load` (see `Problem`). It is known by a
name that you `register`, as an entry point of the group ``kru.tasks`` of an installed package, or as ``module:Name``.
"""

from dataclasses import is_dataclass
from typing import Any

from kru.lab.tasks.adding import Adding
from kru.lab.tasks.copy_memory import CopyMemory
from kru.lab.tasks.mnist import Mnist
from kru.lab.tasks.music import Music
from kru.lab.tasks.own_files import Sequences, Text
from kru.lab.tasks.penn_treebank import PennTreebank
from kru.lab.tasks.timit import Timit
from kru.lab.tasks.tracking import Tracking
from kru.nn.lookup import lookup
from kru.training.task import Problem

ENTRY_POINTS = "kru.tasks"

TASKS: dict[str, type[Problem]] = {
    "copy": CopyMemory,
    "adding": Adding,
    "mnist": Mnist,
    "ptb": PennTreebank,
    "music": Music,
    "timit": Timit,
    "sequences": Sequences,
    "text": Text,
    "tracking": Tracking,
}
"""The names of the tasks that are registered."""


def register(name: str, problem: type[Problem]) -> None:
    """Make a task known by a name, which is taken once."""
    if TASKS.get(name, problem) is not problem:
        raise ValueError(f"task: expected a name that is not taken, got {name!r}")
    TASKS[name] = problem


def find_task(name: Any, *, imports: bool = False) -> type[Problem]:
    """The settings' class of a task: registered, an entry point, or ``module:Name``.

    Args:
        imports: whether the module of ``module:Name`` may be imported, which runs it: only for names that the user
            wrote in a recipe or on the command line.
    """
    if not isinstance(name, str):
        raise ValueError(f"task.name: expected one of {', '.join(TASKS)} or module:Name, got {name!r}")
    found: type[Problem] = lookup(name, TASKS, ENTRY_POINTS, "task.name", _is_problem, imports=imports)
    TASKS.setdefault(name, found)
    return found


def task_name(problem: Problem) -> str:
    """What recipes call the task of these settings."""
    kind = type(problem)
    known = (name for name, found in TASKS.items() if found is kind)
    return next(known, f"{kind.__module__}:{kind.__qualname__}")


def _is_problem(found: Any) -> bool:
    return (
        isinstance(found, type)
        and is_dataclass(found)
        and all(hasattr(found, n) for n in ("load", "sizes", "label"))
    )
