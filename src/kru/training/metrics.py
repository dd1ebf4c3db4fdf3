"""metrics.jsonl: one JSON object a line, the record of a run over time."""

import json
import os
from pathlib import Path
from typing import Any

from kru.training.plain_json import parse_json


class Metrics:
    """Appends to a run's metrics.jsonl, after cutting it back to the length that a checkpoint knows of."""

    def __init__(self, path: Path, length: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = open(path, "ab")  # noqa: SIM115  (closed by `close`)
        # Never made longer: if lines were lost, zeros in their place would spoil the next one too.
        self._stream.truncate(min(length, self._stream.seek(0, os.SEEK_END)))
        self._stream.seek(0, os.SEEK_END)

    def write(self, **values: Any) -> None:
        """Add a line; numbers are rounded to six digits."""
        rounded = {key: _rounded(value) for key, value in values.items() if value is not None}
        self._stream.write(json.dumps(rounded).encode() + b"\n")
        self._stream.flush()

    def sync(self) -> int:
        """Put everything on disk; the length of the file."""
        os.fsync(self._stream.fileno())
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()


def is_point(values: Any) -> bool:
    """Whether this is a line of a metrics.jsonl: when it was, and what reports draw, as numbers."""
    return (
        isinstance(values, dict)
        and all(isinstance(values.get(key), float | int) for key in ("step", "seconds"))
        and all(isinstance(values.get(key, 0), float | int) for key in ("valid", "distance"))
    )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; one that was cut off in the middle, at the end, is left out."""
    lines = []
    for line in path.read_bytes().splitlines():
        try:
            values = parse_json(line)
        except ValueError:
            break
        if not is_point(values):
            break
        lines.append(values)
    return lines


def thinned(lines: list[dict[str, Any]], count: int = 300) -> list[dict[str, Any]]:
    """At most about `count` lines: validations and the others each evenly over the run, in order."""
    kept: set[int] = set()
    for wanted in (True, False):
        indices = [i for i, line in enumerate(lines) if ("valid" in line) == wanted]
        room = count // 2
        stride = max(1, -(-len(indices) // room))
        # Counted from the end, so that the last line is always there.
        kept.update(indices[::-1][::stride])
    return [lines[i] for i in sorted(kept)]


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
