"""The platforms that wheels are built for, and how the kernels are cross-compiled for each with `ziglang`."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CSRC = Path(__file__).parents[1] / "csrc"
# The flags of CMakeLists.txt.
KERNELS = ["-std=gnu++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
X86 = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"],
}
ARM = {"neon": []}


@dataclass(frozen=True)
class Target:
    """A platform: its name for zig, its wheel tag, and what a library for it may need."""

    name: str
    zig: str
    tag: str
    library: str
    machine: str
    instruction_sets: dict[str, list[str]]
    needs: tuple[str, ...]
    """What the library may load, as beginnings of names in lower case: all of it belongs to the system."""
    system: tuple[int, ...] = ()
    """The oldest version of glibc or macOS, as the tag has it."""

    @property
    def windows(self) -> bool:
        return "windows" in self.zig

    @property
    def macos(self) -> bool:
        return "macos" in self.zig

    @property
    def linux(self) -> bool:
        return "linux" in self.zig


GLIBC = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux")
MACOS = ("/usr/lib/libsystem.b.dylib",)
WINDOWS = ("kernel32.dll", "api-ms-win-crt-", "ntdll.dll")
TARGETS = [
    Target(
        "linux-x86-64",
        "x86_64-linux-gnu.2.17",
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "libkru.so",
        "x86_64",
        X86,
        GLIBC,
        (2, 17),
    ),
    Target(
        "linux-arm64",
        "aarch64-linux-gnu.2.17",
        "manylinux_2_17_aarch64.manylinux2014_aarch64",
        "libkru.so",
        "aarch64",
        ARM,
        GLIBC,
        (2, 17),
    ),
    Target(
        "macos-arm64",
        "aarch64-macos.11.0",
        "macosx_11_0_arm64",
        "libkru.dylib",
        "arm64",
        ARM,
        MACOS,
        (11, 0),
    ),
    Target(
        "macos-x86-64",
        "x86_64-macos.11.0",
        "macosx_11_0_x86_64",
        "libkru.dylib",
        "x86_64",
        X86,
        MACOS,
        (11, 0),
    ),
    Target("windows-x86-64", "x86_64-windows-gnu", "win_amd64", "kru.dll", "AMD64", X86, WINDOWS),
]


def zig(target: Target, *arguments: str | Path) -> None:
    """Call zig's C++ compiler for a target.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "ziglang", "c++", "-target", target.zig, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-3000:]}")


def build_library(target: Target, folder: Path, jobs: int) -> Path:
    """Compile the kernels, once for each instruction set, and link them."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = ["-fvisibility=hidden", *([] if target.windows else ["-fPIC"])]
    calls = [
        (folder / f"{name}.o", ["-std=gnu++17", "-O2", *hidden, "-c", CSRC / f"{name}.cpp"])
        for name in ("dispatch", "threads", *(["macos_new"] if target.macos else []))
    ]
    for name, flags in target.instruction_sets.items():
        define = f"-DKRU_ISA={name}"
        calls.append((folder / f"{name}.o", [*KERNELS, *flags, *hidden, define, "-c", CSRC / "kernels.cpp"]))
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda call: zig(target, *call[1], "-o", call[0]), calls))
    library = folder / target.library
    if target.linux:
        link: list[str] = [f"-Wl,--version-script={CSRC / 'exports.map'}", "-Wl,-soname,libkru.so"]
    elif target.windows:
        link = [f"-Wl,--out-implib,{folder / 'kru.lib'}"]
    else:
        link = ["-Wl,-install_name,@rpath/libkru.dylib"]
    zig(target, "-shared", "-s", *link, *(path for path, _ in calls), "-o", library)
    return library


def build_selftest(target: Target, folder: Path, library: Path) -> Path:
    """Compile the kernels' own test against the library, beside it."""
    program = folder / ("selftest.exe" if target.windows else "selftest")
    found_by = [] if target.windows else ["-Wl,-rpath,$ORIGIN"]
    linked = folder / "kru.lib" if target.windows else library
    zig(target, "-std=gnu++17", "-O1", CSRC / "selftest" / "main.cpp", linked, *found_by, "-o", program)
    return program
