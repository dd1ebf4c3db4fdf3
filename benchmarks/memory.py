"""Time and peak memory of a training step that keeps all states, and of one that computes most of them again.

The contestants of a row take turns in one run, each on one thread; the clock is that thread's. The peak is what a step
in a process of its own adds to the process. Writes results/benchmarks/memory.json and the table in docs/kernels.md.

    .venv/bin/python benchmarks/memory.py
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing import Case, measure

import kru
from kru.lab.result import commit, machine
from kru.ops import buffers
from kru.training.files import write_atomically

LAYERS = {"KRU": kru.KRU, "KRULSTM": kru.KRULSTM, "KRUGRU": kru.KRUGRU}
ROWS = [(name, 512, 784, 50) for name in LAYERS] + [("KRU", 512, 100_000, 8)]
"""Layer, units, steps and rows. All states of the last one are too many to keep."""
MODES = ("full", "lean")
TOO_LARGE = 1 << 31
MARK = "<!-- memory -->"


def step(layer: str, units: int, steps: int, batch: int, mode: str) -> Callable[[], None]:
    """A training step with a loss on the last state, without an optimiser."""
    torch.manual_seed(0)
    model, x = LAYERS[layer](1, units), torch.rand(steps, batch, 1)

    def run() -> None:
        model.zero_grad()
        _, state = model(x, need_output=mode == "full", memory=mode)
        (state if isinstance(state, torch.Tensor) else state[0]).square().sum().backward()

    return run


def peak_here(row: tuple[str, int, int, int], mode: str) -> int:
    """Bytes that the first step adds to this process, the input left out."""
    step(row[0], row[1], 20, row[3], mode)()
    run = step(*row, mode)
    buffers.clear()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    run()
    return status("VmHWM") - before


def status(field: str) -> int:
    """Bytes, as Linux tells them of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def peak(row: tuple[str, int, int, int], mode: str) -> int:
    command = [sys.executable, __file__, "--peak", *map(str, row), mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def modes_of(row: tuple[str, int, int, int]) -> list[str]:
    layer, units, steps, batch = row
    states = 4 * steps * batch * units * (2 if layer == "KRU" else 6)
    return [mode for mode in MODES if mode == "lean" or states < TOO_LARGE]


def table(rows: list[dict[str, object]]) -> str:
    lines = [
        "| layer | T | B | memory | CPU time of a step | peak |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
        for mode, figures in row["modes"].items():  # type: ignore[attr-defined]
            lines.append(
                f"| {row['layer']} {row['units']} | {row['steps']:,} | {row['batch']} | {mode} | "
                f"{figures['median'] * 1e3:.3g} ms | {figures['peak'] / 1e6:.3g} MB |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each row")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/memory.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/kernels.md"), help="page with the table")
    parser.add_argument("--peak", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        layer, units, steps, batch, mode = arguments.peak
        print(peak_here((layer, int(units), int(steps), int(batch)), mode))
        return
    rows: list[dict[str, object]] = []
    for row in ROWS:
        contestants = {mode: step(*row, mode) for mode in modes_of(row)}
        times = measure(Case(str(row), contestants, again=True), arguments.seconds, clock=time.thread_time)
        modes = {
            mode: {"median": timing.median, "minimum": timing.minimum, "peak": peak(row, mode)}
            for mode, timing in times.items()
        }
        rows.append(dict(zip(("layer", "units", "steps", "batch"), row, strict=True)) | {"modes": modes})
        print(table(rows[-1:]), flush=True)
    record = {
        "command": " ".join([".venv/bin/python benchmarks/memory.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "clock": "CPU time of the one thread",
        "rows": rows,
    }
    write_atomically(arguments.out, (json.dumps(record, indent=1) + "\n").encode())
    before, _, after = arguments.page.read_text(encoding="utf-8").split(MARK)
    write_atomically(arguments.page, f"{before}{MARK}\n{table(rows)}\n{MARK}{after}".encode())


if __name__ == "__main__":
    main()
