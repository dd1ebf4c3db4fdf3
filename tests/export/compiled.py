"""Generated C, compiled and called from Python."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kru.export import C99Export

WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion"]
HERE = Path(__file__).parent


def tool(name: str) -> str:
    """The path of a compiler or another program; the test is skipped without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} here")
    return path


def run(*command: object) -> str:
    """What a command printed. A failure shows its complaint."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Compiled:
    """A model in C, with one state."""

    def __init__(self, export: C99Export, compiler: str = "gcc", level: str = "-O2") -> None:
        header, source = export.files
        self.name = header.stem
        library = header.parent / f"{self.name}.so"
        run(tool(compiler), *WARNINGS, level, "-fPIC", "-shared", source, "-o", library, "-lm")
        self.library = ctypes.CDLL(str(library))
        text = header.read_text()
        self.symbols = "_SYMBOLS" in text
        self.sound = "_RATE" in text
        self.outputs = int(re.search(r"_OUTPUTS (\d+)", text)[1])  # type: ignore[index]
        self.arrays: dict[str, NDArray[np.float32]] = {}
        sizes = {name: int(size) for name, size in re.findall(r"float (\w+)\[(\d+)\];", text)}
        self.memory = np.full(sum(sizes.values()), np.nan, dtype=np.float32)
        start = 0
        for name, size in sizes.items():
            self.arrays[name] = self.memory[start : start + size]
            start += size
        assert self.memory.nbytes == export.state_bytes
        self.reset()

    def reset(self) -> None:
        getattr(self.library, f"{self.name}_reset")(_pointer(self.memory))

    def set_state(self, states: tuple[torch.Tensor, ...]) -> None:
        """States (layers, S), as a layer has them."""
        for name, state in zip("hc", states, strict=False):
            for layer, values in enumerate(state):
                self.arrays[f"{name}_{layer}"][: len(values)] = values.numpy()

    def states(self, name: str, size: int) -> NDArray[np.float32]:
        """h or c of all layers, (layers, S)."""
        layers = sum(array.startswith(f"{name}_") for array in self.arrays)
        return np.stack([self.arrays[f"{name}_{layer}"][:size] for layer in range(layers)])

    def step(self, x: torch.Tensor) -> NDArray[np.float32]:
        """The output for one step, D values or one symbol."""
        y = np.full(self.outputs, np.nan, dtype=np.float32)
        assert self.call(x, y) == 0
        return y

    def call(self, x: torch.Tensor | int, y: NDArray[np.float32] | None) -> int:
        function = getattr(self.library, f"{self.name}_step")
        function.restype = ctypes.c_int if self.symbols or self.sound else None
        argument = ctypes.c_int(int(x)) if self.symbols else _pointer(torch.as_tensor(x).numpy())
        return function(_pointer(self.memory), argument, None if y is None else _pointer(y)) or 0


def _pointer(array: NDArray[np.float32]) -> ctypes.c_void_p:
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def write_inputs(path: Path, x: torch.Tensor) -> None:
    """The inputs of tests/export/stream.c, for one sequence (T, D) or symbols (T,)."""
    kind = "float" if x.is_floating_point() else "int"
    numbers = ", ".join(
        float(value).hex() if x.is_floating_point() else str(int(value)) for value in x.flatten()
    )
    path.write_text(
        f"#define STEPS {len(x)}\n#define WIDTH {x[0].numel()}\n"
        f"static const {kind} inputs[] = {{{numbers.replace(', ', 'f, ') + 'f' if kind == 'float' else numbers}}};\n"
    )


def read_outputs(printed: str) -> NDArray[np.float32]:
    """The outputs that stream.c printed, (T, C), from the bits of each number."""
    rows = [[int(word, 16) for word in line.split()] for line in printed.splitlines()]
    return np.array(rows, dtype=np.uint32).view(np.float32)
