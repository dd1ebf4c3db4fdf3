"""A script: the peak memory of passes over a sequence, in bytes above what was there before.

Each argument is a case, its parts with commas between them: training or inference, cell, nonlinearity, field,
kind of input. Prints a line for each case with the peak for each number of STEPS.
"""

import gc
import sys
from pathlib import Path

import torch

from kru.ops import buffers, scan

UNITS, BATCH, STEPS = 256, 32, (400, 800)
SIZES = {"small": 2, "large": 32, "symbols": 50}
GATES = {"elman": 1, "lstm": 4, "gru": 3}


def status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def peak(mode: str, cell: str, nonlinearity: str, field: str, kind: str, steps: int) -> int:
    train = mode == "training"
    leading = GATES[cell] * (2 if field == "complex" else 1)
    size, width = SIZES[kind], leading * UNITS
    factor = torch.eye(2) if leading == 1 else torch.eye(2).expand(leading, 2, 2) / leading
    factors = [factor.clone().requires_grad_(train) for _ in range(UNITS.bit_length() - 1)]
    symbols = kind == "symbols"
    x = torch.randint(size, (steps, BATCH)) if symbols else torch.randn(steps, BATCH, size)
    weight = torch.randn(width, size, requires_grad=train)
    modrelu = cell == "elman" and nonlinearity == "modrelu"
    bias = torch.zeros(UNITS if modrelu else width, requires_grad=train)
    gc.collect()
    buffers.clear()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    result = scan(x, weight, factors, cell=cell, nonlinearity=nonlinearity, field=field, bias=bias)
    if train:
        result.h.sum().backward()
    return status("VmHWM") - before


if __name__ == "__main__":
    torch.set_num_threads(2)
    for case in sys.argv[1:]:
        parts = case.split(",")
        peak(*parts, 3)
        print(*(peak(*parts, steps) for steps in STEPS), flush=True)
