"""What this machine offers, and what makes kru slow on it."""

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

import kru
from kru.lab.data import data_directory
from kru.ops import bindings, gpu

EXTRAS = {"optuna": "sweep", "onnx": "export", "tensorboard": "tensorboard"}
"""Packages that commands need besides those that are always installed, and the extra that brings each."""


@dataclass(frozen=True)
class Finding:
    """Something that is slow or missing (`serious`) or merely absent, and what to do."""

    what: str
    remedy: str
    serious: bool = True


def versions() -> str:
    """What `kru --version` prints.

    >>> versions().splitlines()[0] == f"kru {kru.__version__}"
    True
    """
    native = f"{bindings.simd()} instructions" if bindings.library else f"none ({bindings.missing})"
    threads = torch.get_num_threads()
    return "\n".join(
        [
            f"kru {kru.__version__}",
            f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            f"native kernels: {native}",
            f"GPU kernels: {gpu.status()}",
            f"threads: {threads} of {_cores()} cores",
        ]
    )


def findings() -> list[Finding]:
    """Everything that `kru doctor` has to say, the most serious first."""
    return [*_about_kernels(), *_about_torch(), *_about_threads(), *_about_data(), *_about_extras()]


def _about_kernels() -> list[Finding]:
    if bindings.library is None:
        if os.environ.get("KRU_NATIVE", "1") == "0":
            remedy = "unset KRU_NATIVE"
        else:
            remedy = (
                "install a wheel, or install a C++ compiler (Debian: apt-get install g++) and then kru again"
            )
        return [
            Finding(f"no native kernels: {bindings.missing}. Layers run on slower PyTorch operations", remedy)
        ]
    best = _best_instructions()
    if bindings.simd() != best:
        wanted = os.environ.get("KRU_SIMD")
        return [
            Finding(
                f"KRU_SIMD={wanted} limits the kernels to {bindings.simd()}; this machine has {best}",
                "unset KRU_SIMD",
            )
        ]
    if best == "baseline":
        return [
            Finding(
                "the kernels have only the plain instruction set here", "use a processor with AVX2 or NEON"
            )
        ]
    return []


def _best_instructions() -> str:
    """The instruction set without KRU_SIMD, which the library reads once: so in another process."""
    assert bindings.library is not None
    if not os.environ.get("KRU_SIMD"):
        return bindings.simd()
    code = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).kru_simd; f.restype = ctypes.c_char_p; print(f().decode())"
    variables = {key: value for key, value in os.environ.items() if key != "KRU_SIMD"}
    command = [sys.executable, "-c", code, bindings.library._name]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()


def _about_torch() -> list[Finding]:
    least = _least_torch()
    have = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if have >= least:
        return []
    wanted = ".".join(map(str, least))
    return [Finding(f"torch {torch.__version__} is older than {wanted}", f"pip install 'torch>={wanted}'")]


def _least_torch() -> tuple[int, ...]:
    try:
        needed = importlib.metadata.requires("kru") or []
    except importlib.metadata.PackageNotFoundError:  # run from its source, not installed
        return (0,)
    found = next((m for line in needed if (m := re.match(r"torch>=(\d+)\.(\d+)", line))), None)
    return tuple(map(int, found.groups())) if found else (0,)


def _about_threads() -> list[Finding]:
    cores, threads = _cores(), torch.get_num_threads()
    found = []
    if threads == 1 < cores:
        said_by = "OMP_NUM_THREADS=1: unset it" if os.environ.get("OMP_NUM_THREADS") == "1" else ""
        found.append(
            Finding(f"one thread on {cores} cores", said_by or f"call torch.set_num_threads({cores})")
        )
    elif threads > cores:
        found.append(
            Finding(
                f"{threads} threads on {cores} usable cores: they wait for each other",
                f"set OMP_NUM_THREADS={cores}",
            )
        )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 1.5 * cores:
        found.append(
            Finding(
                f"other programs are busy: load {load:.1f} on {cores} cores",
                "expect everything to take longer, and timings to mean little",
            )
        )
    return found


def _about_data() -> list[Finding]:
    folder = data_directory(None)
    if folder.is_dir():
        return []
    remedy = "kru data fetch, or KRU_DATA=FOLDER; copy memory and adding need no data"
    return [Finding(f"no data folder {_shown(folder)}", remedy, serious=False)]


def _about_extras() -> list[Finding]:
    return [
        Finding(f"{package} is not installed", f"pip install 'kru[{extra}]' if you want it", serious=False)
        for package, extra in EXTRAS.items()
        if importlib.util.find_spec(package) is None
    ]


def arithmetic() -> float | None:
    """Multiplications and additions per second of one core in float32, measured; None without native kernels."""
    if bindings.library is None:
        return None
    return float(bindings.library.kru_fma_rate(ctypes.c_int32(0), ctypes.c_double(0.1)))


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shown(folder: Path) -> str:
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
