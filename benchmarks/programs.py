"""Exported C, compiled: its bytes, its time, and what it says of whole test sets."""

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kru.export import c99

COMPILER = ("gcc", "-std=c99", "-O3", "-march=native")


def compiled_sizes(source: Path) -> int:
    """Bytes of code and constants of a C file, compiled for size."""
    small = source.with_suffix(".o")
    subprocess.run(["gcc", "-std=c99", "-Os", "-c", source, "-o", small], check=True)
    sizes = subprocess.run(["size", small], check=True, capture_output=True, text=True).stdout
    return sum(map(int, sizes.splitlines()[1].split()[:3]))


def program(model: Any, cases: Sequence[NDArray[Any]], predictions: NDArray[Any]) -> dict[str, Any]:
    """Bytes of the compiled C of a classifier, its microseconds a step, and how many cases it labels as `predict` does.

    Args:
        cases: (channels, time) each. A step is one time, of sounds with features one sample.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "c"
        export = c99(model, folder)
        _, source = export.files
        size = compiled_sizes(source)
        library = folder / "model.so"
        harness = Path(__file__).with_name("stream.c")
        command = [*COMPILER, f"-I{folder}", "-fPIC", "-shared", source, harness, "-o", library, "-lm"]
        subprocess.run(command, check=True)
        function = ctypes.CDLL(str(library)).run_sequence
        outputs = np.zeros((len(cases), len(model.classes_)), dtype=np.float32)
        inputs = [np.ascontiguousarray(case.T, dtype=np.float32) for case in cases]

        def call() -> None:
            for x, y in zip(inputs, outputs, strict=True):
                pointers = (ctypes.c_void_p(array.ctypes.data) for array in (x, y))
                function(*pointers, ctypes.c_long(len(x)))

        call()
        begin = time.thread_time()
        call()
        seconds = time.thread_time() - begin
    same = model.classes_[outputs.argmax(1)] == predictions
    steps = sum(map(len, inputs))
    return {
        "c_bytes": size,
        "ram_bytes": export.state_bytes,
        "c_microseconds": round(seconds / steps * 1e6, 3),
        "c_same": int(same.sum()),
        "cases": len(cases),
    }
