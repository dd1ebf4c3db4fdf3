"""The library's thread pool against OpenMP: the same kernels, interleaved in one process.

python benchmarks/threads.py [--seconds 4] [--out results/benchmarks/threads.json]

Builds the kernels in build/openmp (a few minutes, once). OpenMP's threads are those that torch uses.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from run import processor
from timing import Case, measure

import kru
from kru.ops import bindings

ROOT = Path(__file__).parents[1]
FUNCTIONS = [f"kru_{name}_{way}" for name in ("kron", "scan", "chain") for way in ("forward", "backward")]


def libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """The library with its thread pool and with OpenMP, from the same objects."""
    build = ROOT / "build" / "openmp"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (
        ["cmake", "-S", str(ROOT / "benchmarks" / "openmp"), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", str(build), "--parallel", str(os.cpu_count())],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path})
    return like_ours(build / "kru" / "libkru.so"), like_ours(build / "libkru_openmp.so")


def like_ours(path: Path) -> ctypes.CDLL:
    """A library with the signatures of the one that is loaded."""
    library = ctypes.CDLL(str(path))
    assert bindings.library is not None, "the benchmarks need the native library"
    assert library.kru_interface() == bindings.INTERFACE, (
        "the sources are of another version than the package"
    )
    for name in FUNCTIONS:
        entry, known = getattr(library, name), getattr(bindings.library, name)
        entry.argtypes, entry.restype = known.argtypes, known.restype
    return library


def with_library(library: ctypes.CDLL, call: Callable[[], object]) -> Callable[[], object]:
    packed = library["kru_kron_forward"]
    packed.argtypes, packed.restype = [ctypes.c_char_p], ctypes.c_int

    def run() -> None:
        before = bindings.library, bindings.kron_forward_packed
        bindings.library, bindings.kron_forward_packed = library, packed
        try:
            call()
        finally:
            bindings.library, bindings.kron_forward_packed = before

    return run


def calls() -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    x, factors = torch.randn(256, 512), [torch.randn(2, 2) for _ in range(9)]
    large, small = kru.KRU(1, 512), kru.KRU(10, 128)
    pixels, symbols = torch.rand(784, 50, 1), torch.randn(1020, 20, 10)

    def forward() -> object:
        with torch.no_grad():
            return large(pixels)

    def train(layer: kru.KRU, x: torch.Tensor, last: bool) -> None:
        output = layer(x)[0]
        (output[-1] if last else output).sum().backward()

    return {
        "kron_matmul 256 x 2^9, float32": lambda: kru.kron_matmul(x, factors),
        "KRU 512, T=784, B=50, forward": forward,
        "KRU 512, T=784, B=50, training, last state": lambda: train(large, pixels, True),
        "KRU 512, T=784, B=50, training, all states": lambda: train(large, pixels, False),
        "KRU 128, T=1020, B=20, training": lambda: train(small, symbols, False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each case")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "benchmarks" / "threads.json")
    arguments = parser.parse_args()
    pool, openmp = libraries()
    rows = []
    for name, call in calls().items():
        contestants = {"pool": with_library(pool, call), "openmp": with_library(openmp, call)}
        times = measure(Case(name, contestants, again=True), arguments.seconds)
        row = {
            "case": name,
            "pool": times["pool"].median,
            "openmp": times["openmp"].median,
            "ratio": times["pool"].median / times["openmp"].median,
            "ratio_of_minima": times["pool"].minimum / times["openmp"].minimum,
            "rounds": times["pool"].rounds,
        }
        rows.append(row)
        print(
            f"{name:46s} pool / OpenMP {row['ratio']:6.2f} ({row['ratio_of_minima']:.2f} fastest round)",
            flush=True,
        )
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    record = {
        "command": "python benchmarks/threads.py",
        "commit": commit.stdout.strip(),
        "cpu": processor(),
        "simd": bindings.simd(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
