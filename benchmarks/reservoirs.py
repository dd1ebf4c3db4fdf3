"""Echo state networks against ReservoirPy in one interleaved run: errors, memory capacity, time and memory.

    python benchmarks/reservoirs.py                  # writes results/benchmarks/reservoirs.json and the figure

Both contestants get the same settings to search among, the same number of trials, the same data, the same ridge
read-out (in float64, of state and input) and the same seeds. Settings and regularisation are chosen on validation data
with one seed, for each problem and N; the figures are from test data with five other seeds. A run that was stopped
continues from the file of cells.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import reservoirpy
import torch
from reservoir_classes import classes
from reservoir_errors import SEEDS, Cells, equal_time, errors
from reservoir_speed import draw, large, speed

from kru.ops import bindings

PARTS = ("errors", "classes", "speed", "large")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--problems", default="", help="errors of problems whose name contains this")
    parser.add_argument("--trials", type=int, default=12, help="settings searched for each problem and N")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each N of the speeds")
    parser.add_argument("--units", nargs="+", type=int, default=[], help="speed at these N alone")
    parser.add_argument("--cells", type=Path, default=Path("build/reservoirs.jsonl"), help="cells of errors")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/reservoirs.json"))
    parser.add_argument("--figure", type=Path, default=Path("results/figures/reservoirs.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.time()
    commit = _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--porcelain", "-uno") else "")
    run = {
        "command": " ".join(["python", "benchmarks/reservoirs.py", *sys.argv[1:]]),
        "commit": commit,
        "machine": {"cpu": processor(), "threads": 1, "simd": bindings.simd(), "torch": torch.__version__},
        "reservoirpy": reservoirpy.__version__,
        "seeds": list(SEEDS),
    }
    for part in arguments.parts:
        began = time.time()
        if part == "errors":
            arguments.cells.parent.mkdir(parents=True, exist_ok=True)
            rows = errors(Cells(arguments.cells, {"commit": commit}), arguments.trials, arguments.problems)
            found = {"errors": rows, "equal_time": equal_time(rows)}
        elif part == "classes":
            found = {"classes": classes()}
        elif part == "speed":
            # A few sizes alone do not replace the record of all, from which the figure is drawn.
            name = "speed_at" if arguments.units else "speed"
            found = {name: speed(arguments.seconds, arguments.units or [2**power for power in range(8, 21)])}
        else:
            found = {"large": large()}
        # Another part may have been measured meanwhile.
        stored: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        record = {**stored, **found}
        record.setdefault("runs", {})[next(iter(found))] = {
            **run,
            "wall_seconds": round(time.time() - began, 1),
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rounded(record), indent=1) + "\n")
        if "speed" in record and "large" in record:
            draw(record, arguments.figure)
    print(f"written to {arguments.out} after {time.time() - start:.0f} s")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
