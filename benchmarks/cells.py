"""A table measured cell by cell: each is saved when it is finished, and skipped when the command is repeated."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kru.lab.result import commit, machine
from kru.training.files import write_atomically


class Cells:
    """The record of a benchmark.

    Args:
        path: JSON with the rows so far.
        command: that measures all of it.
        key: the names of the fields that say which cell a row is.
    """

    def __init__(self, path: Path, command: str, key: Sequence[str]) -> None:
        self.path, self.command, self.key = path, command, tuple(key)
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            self.rows = json.loads(path.read_text())["rows"]

    def add(self, measure: Callable[[], dict[str, Any]], *cell: object) -> None:
        """Measure a cell, unless it is there."""
        if any(tuple(row[name] for name in self.key) == cell for row in self.rows):
            return
        begin = time.perf_counter()
        row = measure()
        row |= {"wall_seconds": round(time.perf_counter() - begin, 1), "commit": commit()}
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        self.rows.append(row)
        self.save()

    def save(self) -> None:
        record = {
            "command": self.command,
            "machine": machine(),
            "rows": self.rows,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(record, indent=1) + "\n").encode())
