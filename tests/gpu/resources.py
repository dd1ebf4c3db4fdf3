"""What the compiled kernels need, found without a GPU: registers, stack, shared memory, instructions, barriers.

python tests/gpu/resources.py [--write] [--table] [--target sm_80] [--case elman-512-forward-50]

The host code runs on the CPU with every kernel's start recorded instead of done; each recorded start is compiled for
each kind of GPU as it would be there, and the machine code is read. `--write` records the figures in resources.json,
from which `test_compiled.py` takes its limits; `--table` prints what is recorded, as docs/gpu.md has it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from kru.ops import gpu
from kru.ops.kron import triton as kron
from kru.ops.scan import triton as scan
from kru.ops.scan.arguments import DIFFERENTIABLE, ScanArguments
from kru.ops.scan.contract import Gradients, Kept

RECORD = Path(__file__).with_name("resources.json")
TARGETS = {
    "sm_80": (GPUTarget("cuda", 80, 32), 163 << 10),
    "sm_90": (GPUTarget("cuda", 90, 32), 227 << 10),
    "sm_100": (GPUTarget("cuda", 100, 32), 227 << 10),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64 << 10),
}
"""Kinds of GPU (A100; H100; B200; MI300) and the shared memory that a program can have there, in bytes."""
PROCESSORS = 108
"""Of an A100: the number of warps follows from it."""
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass
class Start:
    """The start of a kernel as the host code wanted it."""

    kernel: JITFunction
    arguments: dict[str, Any]
    options: dict[str, int]


@dataclass
class Resources:
    """Of one kernel on one kind of GPU. Instructions are counted in the loop over time; 0 without one."""

    warps: int
    registers: int
    stack: int
    spills: int
    shared: int
    instructions: int
    barriers: int
    ends_with_barrier: bool
    """Whether a barrier comes between the last value that a step writes and the next one that is loaded."""
    fetches_ahead: bool
    """Whether there are asynchronous copies or loads through the cache for constants."""


def elman(shapes: list[tuple[int, int]], batch: int, direction: str) -> Callable[[], object]:
    """modReLU, complex: the paper's model."""
    units = torch.tensor([p for p, _ in shapes]).prod().item()
    x = torch.zeros(2, batch, 2 * units)
    factors = [torch.zeros(2, *shape) for shape in shapes]
    return _scan(ScanArguments(x, None, factors, torch.zeros(units)), direction)


def gated(cell: str, shapes: list[tuple[int, int]], batch: int, direction: str) -> Callable[[], object]:
    units = torch.tensor([p for p, _ in shapes]).prod().item()
    gates = {"lstm": 4, "gru": 3}[cell]
    x = torch.zeros(2, batch, gates * units)
    factors = [torch.zeros(gates, *shape) for shape in shapes]
    return _scan(ScanArguments(x, None, factors, cell=cell, is_complex=False), direction)


def _scan(arguments: ScanArguments, direction: str) -> Callable[[], object]:
    shape = (arguments.steps, arguments.batch, arguments.state)
    if direction == "forward":
        return lambda: scan.forward(arguments, True)
    wide = (
        torch.zeros(*shape[:2], arguments.gates * arguments.state) if arguments.has_gates else torch.zeros(0)
    )
    kept = Kept(torch.zeros(shape), wide, torch.zeros(shape if arguments.has_gates else 0))
    wants = [
        t is not None and name != "leak"
        for name, t in zip(DIFFERENTIABLE, arguments.differentiable, strict=False)
    ]
    incoming = Gradients(torch.zeros(shape), None, None)
    return lambda: scan.backward(arguments, incoming, kept, [*wants, *[False] * len(arguments.factors)])


def everything(cell: str, shapes: list[tuple[int, int]], rank: int, reverse: bool) -> Callable[[], object]:
    """A small recurrence with every argument, forward and backward."""
    units = torch.tensor([p for p, _ in shapes]).prod().item()
    steps, batch, elman_cell = 3, 300, cell == "elman"
    leading = ({"elman": 2, "lstm": 4, "gru": 3}[cell],)
    if rank > 1:
        leading = (rank, *leading)
    state = units * (2 if elman_cell else 1)
    gates = 1 if elman_cell else leading[-1]
    arguments = ScanArguments(
        torch.zeros(steps, batch, gates * state),
        None,
        [torch.zeros(*leading, *shape) for shape in shapes],
        bias=torch.zeros(units if elman_cell else gates * state),
        recurrent_bias=torch.zeros(units) if cell == "gru" else None,
        h0=torch.zeros(batch, state),
        c0=torch.zeros(batch, state) if cell == "lstm" else None,
        lengths=torch.full((batch,), steps),
        leak=torch.ones(units) if elman_cell else None,
        reset=torch.zeros(steps, batch, dtype=torch.bool),
        initial=torch.zeros(state),
        cell=cell,
        is_complex=elman_cell,
        reverse=reverse,
    )

    def both() -> None:
        states, h, c, reserve, cells = scan.forward(arguments, True)
        wants = [t is not None and t.is_floating_point() for t in arguments.differentiable]
        incoming = Gradients(torch.zeros_like(states), h, c if cell == "lstm" else None)
        scan.backward(arguments, incoming, Kept(states, reserve, cells), wants)

    return both


def product(shapes: list[tuple[int, int]], rows: int, dtype: torch.dtype) -> Callable[[], object]:
    columns = torch.tensor([q for _, q in shapes]).prod().item()
    return lambda: kron.forward(
        torch.zeros(rows, columns, dtype=dtype), [torch.zeros(s, dtype=dtype) for s in shapes]
    )


CASES = {
    **{
        f"elman-{2**count}-{direction}-{batch}": elman([(2, 2)] * count, batch, direction)
        for count, batch in ((7, 20), (9, 50), (9, 500), (11, 128))
        for direction in ("forward", "backward")
    },
    **{
        f"elman-3x137-{direction}": elman([(3, 3), (137, 137)], 50, direction)
        for direction in ("forward", "backward")
    },
    **{
        f"lstm-128x16-{direction}": gated("lstm", [(128, 128), (16, 16)], 32, direction)
        for direction in ("forward", "backward")
    },
    **{
        f"gru-128-{direction}": gated("gru", [(2, 2)] * 7, 20, direction)
        for direction in ("forward", "backward")
    },
    "product-512": product([(2, 2)] * 9, 50, torch.complex64),
    "product-128x16": product([(128, 128), (16, 16)], 32, torch.float32),
}
"""Models of the paper, at its batch sizes and, for 512 units, one that fills a GPU."""

COMPLETE = {
    "2x2": everything("elman", [(2, 2)] * 5, 1, True),
    "sums": everything("elman", [(5, 3), (3, 5)], 2, False),
    "lstm": everything("lstm", [(4, 4)], 1, True),
    "gru": everything("gru", [(3, 3), (2, 2)], 2, False),
}
"""Every argument at once: the compiler refuses things that the interpreter accepts."""


def starts_of(case: Callable[[], object]) -> list[Start]:
    """The kernels that a case starts, none of which runs."""
    starts: list[Start] = []

    def record(kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> None:
        options = {name: named.pop(name) for name in ("num_warps", "num_stages") if name in named}
        values = dict(zip(kernel.arg_names, arguments, strict=False)) | named
        starts.append(Start(kernel, values, options))

    run, processors = JITFunction.run, gpu.processors
    JITFunction.run, gpu.processors = record, lambda tensor: PROCESSORS
    try:
        case()
    finally:
        JITFunction.run, gpu.processors = run, processors
    return starts


def compiled(start: Start, target: GPUTarget) -> Any:
    """The kernel, specialised as Triton would at the start: for 1 and for multiples of 16."""
    signature, constants, attributes = {}, {}, {}
    types = {torch.float32: "*fp32", torch.int64: "*i64", torch.uint8: "*u8"}
    for place, parameter in enumerate(start.kernel.params):
        value = start.arguments[parameter.name]
        if isinstance(value, torch.Tensor):
            signature[parameter.name] = types[value.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]
        elif parameter.is_constexpr or value == 1:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        else:
            signature[parameter.name] = "i32" if abs(value) < 2**31 else "i64"
            if value % 16 == 0:
                attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(start.kernel, signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=target, options=start.options)


def resources(start: Start, name: str) -> Resources:
    target, _ = TARGETS[name]
    kernel = compiled(start, target)
    read = _nvidia if target.backend == "cuda" else _amd
    return Resources(warps=start.options["num_warps"], shared=kernel.metadata.shared, **read(kernel))


def _nvidia(kernel: Any) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run(
                [TOOLS / "cuobjdump", option, file.name], capture_output=True, text=True, check=True
            ).stdout
            for option in ("--dump-resource-usage", "-sass")
        )
    found = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    lines = [
        (int(at, 16), text)
        for at, text in re.findall(r"^\s*/\*([0-9a-f]{4,5})\*/\s+(.*?);", code, re.MULTILINE)
    ]
    backwards = [
        (int(match[1], 16), at)
        for at, text in lines
        if (match := re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text)) and int(match[1], 16) < at
    ]
    first, last = max(backwards, key=lambda loop: loop[1] - loop[0], default=(0, -1))
    loop = [text for at, text in lines if first <= at <= last]
    return {
        "registers": found["REG"],
        "stack": found["STACK"],
        "spills": found["LOCAL"] + sum(bool(re.search(r"\b(LDL|STL)\b", text)) for _, text in lines),
        **_loop(loop, r"\bSTG\b", r"\bLDG\b", r"\bBAR\b"),
        "fetches_ahead": "cp.async" in kernel.asm["ptx"] or "ld.global.nc" in kernel.asm["ptx"],
    }


def _amd(kernel: Any) -> dict[str, Any]:
    code = kernel.asm["amdgcn"]
    found = {
        key: int(value)
        for key, value in re.findall(r"^\s*\.(\w+_count|\w+_fixed_size):\s*(\d+)", code, re.MULTILINE)
    }
    lines = [line.strip() for line in code.splitlines()]
    labels = {line[: line.index(":")]: at for at, line in enumerate(lines) if re.match(r"\.?\w+:", line)}
    backwards = [
        (labels[match[1]], at)
        for at, line in enumerate(lines)
        if (match := re.match(r"s_c?branch\w*\s+(\S+)", line)) and labels.get(match[1], at) < at
    ]
    first, last = max(backwards, key=lambda loop: loop[1] - loop[0], default=(0, -1))
    loop = [line for line in lines[first : last + 1] if re.match(r"[a-z]\w+(\s|$)", line)]
    return {
        "registers": found["vgpr_count"],
        "stack": found["private_segment_fixed_size"],
        # Not those of scalar registers, which go to lanes of vector registers: no memory is touched.
        "spills": found["vgpr_spill_count"],
        **_loop(loop, r"\b(global|flat|buffer)_store", r"\b(global|flat|buffer)_load", r"\bs_barrier\b"),
        "fetches_ahead": "_load_lds" in code,
    }


def _loop(loop: list[str], store: str, load: str, barrier: str) -> dict[str, Any]:
    stores = [at for at, text in enumerate(loop) if re.search(store, text)]
    after = stores[-1] + 1 if stores else 0
    # From the last store around to the loop's beginning, where a compiler may have put its end.
    around = [text for text in loop[after:] + loop[:after] if re.search(f"{load}|{barrier}", text)]
    return {
        "instructions": len(loop),
        "barriers": sum(bool(re.search(barrier, text)) for text in loop),
        "ends_with_barrier": bool(around) and bool(re.search(barrier, around[0])),
    }


CLOCK = {"sm_80": 1.41e9, "sm_90": 1.7e9}
"""Cycles per second."""
CYCLES = {"sm_80": 2, "sm_90": 1}
"""That one of the four parts of a processor takes for an instruction of a warp on float32 numbers."""
BARRIER = 30
"""Cycles."""


def microseconds(found: dict[str, Any], target: str) -> float:
    """An estimate of one step of a program that has a processor to itself, from what the loop issues."""
    issued = found["instructions"] * -(-found["warps"] // 4) * CYCLES[target]
    return 1e6 * (issued + BARRIER * found["barriers"]) / CLOCK[target]


def table(record: dict[str, Any]) -> str:
    lines = [
        "| kernel | warps | registers | shared memory | instructions | estimate, us a step |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, targets in record.items():
        case, kernel, _ = name.split()
        found = list(targets.values())
        nested = (
            kernel == "stage_kernel" or case.startswith(("elman-3x137", "lstm", "gru")) or "product" in case
        )
        estimates = (
            []
            if nested
            else [f"{microseconds(targets[t], t):.1f}" for t in CLOCK if kernel.startswith("elman")]
        )
        figures = [
            " / ".join(str(one[key]) for one in found) for key in ("registers", "shared", "instructions")
        ]
        lines.append(
            f"| {case}, {kernel} | {found[0]['warps']} | {' | '.join(figures)} | {' / '.join(estimates)} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record the figures")
    parser.add_argument("--table", action="store_true", help="print the recorded figures, compile nothing")
    parser.add_argument("--target", choices=TARGETS, action="append", help="a kind of GPU; default: all")
    parser.add_argument("--case", choices=CASES, action="append", help="a model; default: all")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if options.table:
        print(table(record))
        return 0
    for case in options.case or CASES:
        for number, start in enumerate(starts_of(CASES[case])):
            for target in options.target or TARGETS:
                found = {k: v for k, v in asdict(resources(start, target)).items() if not isinstance(v, bool)}
                name = f"{case} {start.kernel.__name__} {number}"
                record.setdefault(name, {})[target] = found
                print(name, target, found, flush=True)
    if options.write:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
