"""What the paper reports, from paper.toml beside this file."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class PaperRow:
    """A row as the paper has it; its figures are quoted as text, "" where it gives none."""

    model: str
    units: int | None = None
    total: str = ""
    recurrent: str = ""
    train: str = ""
    valid: str = ""
    test: str = ""


@dataclass(frozen=True)
class PaperTable:
    """The rows of one task; a row's recipe is task-model. `target` is what `kru reproduce` calls it."""

    target: str
    task: str
    title: str
    note: str
    rows: tuple[PaperRow, ...]


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """All tables, in the paper's order."""
    return tuple(
        PaperTable(**{**entry, "rows": tuple(PaperRow(**row) for row in entry["rows"])})
        for entry in _contents()["table"]
    )


def best_strengths() -> dict[str, float]:
    """By task, the strength of the soft unitary constraint that the paper finds best."""
    return dict(_contents()["best_strength"])


@cache
def _contents() -> dict[str, Any]:
    return tomllib.loads((resources.files("kru.lab.report") / "paper.toml").read_text(encoding="utf-8"))
