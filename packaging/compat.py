"""`make compat`: the wheel under every Python and torch that this machine has or can get without gigabytes.

python packaging/compat.py [--python 3.12 ...] [--torch 2.6.0 ...]

torch comes from pip's own folders of packages or from PyTorch's index of CPU builds, never from PyPI, whose builds
bring several gigabytes of CUDA. Where a Python has no torch, the wheel is still installed, every file compiled, the
command line started and the native library loaded.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
WITHOUT_TORCH = """
import compileall, ctypes, importlib.util, pathlib, subprocess, sys
folder = pathlib.Path(importlib.util.find_spec("kru").submodule_search_locations[0])
assert compileall.compile_dir(folder, quiet=1), "a file has no valid syntax here"
library = ctypes.CDLL(str(next(folder.glob("libkru*"))))
library.kru_simd.restype = ctypes.c_char_p
from kru_command import main
sys.argv = ["kru", "--help"]
assert main() == 0
print("native library:", library.kru_simd().decode())
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions; default: 3.11 to 3.14")
    parser.add_argument("--torch", nargs="+", default=torch_versions(), help="versions, or newest")
    parser.add_argument("--wheel", type=Path, help="default: the wheel for this machine in dist/")
    options = parser.parse_args()
    wheel = options.wheel or built_wheel()
    failed, ran = [], 0
    for version in options.python:
        python = find_python(version)
        if python is None:
            print(f"Python {version}: skipped, not on this machine", flush=True)
            continue
        got = False
        for torch in options.torch:
            outcome = check(python, version, torch, wheel)
            if outcome is None:
                print(f"Python {version}, torch {torch}: skipped, no CPU build can be had here", flush=True)
                continue
            got, ran = True, ran + 1
            print(f"Python {version}, torch {torch}: {outcome}", flush=True)
            if outcome.startswith("FAILED"):
                failed.append((version, torch))
        if not got:
            outcome, ran = check_without_torch(python, version, wheel), ran + 1
            print(f"Python {version} without torch: {outcome}", flush=True)
            if outcome.startswith("FAILED"):
                failed.append((version, "none"))
    print(f"{ran} environments, {len(failed)} failed")
    return 1 if failed or not ran else 0


def torch_versions() -> list[str]:
    """The oldest that pyproject.toml allows, the one that everything is tested with, the newest."""
    least = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert least is not None
    assert pinned is not None
    return [f"{least[1]}.0", pinned[1], "newest"]


def built_wheel() -> Path:
    found = sorted(
        (ROOT / "dist").glob(f"kru-*{'manylinux' if sys.platform == 'linux' else ''}*{machine()}.whl")
    )
    if not found:
        sys.exit(
            "make compat: no wheel for this machine in dist/; make wheels WHEELS='--only linux-x86-64' builds it"
        )
    return found[-1]


def machine() -> str:
    return os.uname().machine


def find_python(version: str) -> str | None:
    """A program for this version that starts: on the path, or installed by pyenv."""
    here = [shutil.which(f"python{version}")]
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))]
    here += [str(path) for root in roots for path in sorted(root.glob(f"versions/{version}.*/bin/python"))]
    for program in here:
        if program and not subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode:
            return program
    return None


def environment(python: str, name: str) -> Path:
    """A fresh environment; returns its Python."""
    folder = ROOT / "build" / "compat" / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check(python: str, version: str, torch: str, wheel: Path) -> str | None:
    """What happened, or None if there is no such torch."""
    inside = environment(python, f"{version}-torch-{torch}")
    wanted = "torch" if torch == "newest" else f"torch=={torch}"
    ways = [
        ["--no-index", "--no-deps", wanted],
        ["--index-url", CPU_BUILDS, "--retries", "0", "--timeout", "15", wanted],
    ]
    # The newest is what the index of CPU builds has, not what happens to lie in a folder.
    if all(pip(inside, *way).returncode for way in (ways[1:] if torch == "newest" else ways)):
        return None
    done = pip(inside, "--only-binary", ":all:", f"kru[estimators] @ {wheel.resolve().as_uri()}")
    if done.returncode == 0:
        script = str(ROOT / "packaging" / "compat_check.py")
        command = [str(inside), script]
        done = subprocess.run(command, cwd=inside.parents[1], capture_output=True, text=True, check=False)
    if done.returncode:
        return "FAILED\n" + done.stdout[-1500:] + done.stderr[-3000:]
    return "passed: " + done.stdout.strip().splitlines()[-1]


def check_without_torch(python: str, version: str, wheel: Path) -> str:
    inside = environment(python, f"{version}-without-torch")
    done = pip(inside, "--no-deps", str(wheel.resolve()))
    if done.returncode == 0:
        command = [str(inside), "-W", "error", "-c", WITHOUT_TORCH]
        done = subprocess.run(command, cwd=inside.parents[1], capture_output=True, text=True, check=False)
    if done.returncode:
        return "FAILED\n" + done.stdout[-1500:] + done.stderr[-3000:]
    return "passed: wheel, syntax, command line, " + done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
