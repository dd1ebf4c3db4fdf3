"""The kernels' own test, `csrc/selftest`, on the installed library, at each instruction set that is here."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kru
from kru.ops import bindings

HEADER = Path(__file__).parents[1] / "csrc" / "kru.h"
SOURCE = Path(__file__).parents[1] / "csrc" / "selftest" / "main.cpp"
LEVELS = {
    "x86_64": ["avx512", "avx2", "baseline"],
    "AMD64": ["avx512", "avx2", "baseline"],
    "aarch64": ["neon"],
    "arm64": ["neon"],
}


@pytest.fixture(scope="module")
def selftest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, linked with the very library that Python has loaded."""
    if bindings.library is None:
        pytest.skip("kru has no native library here")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler here")
    name = "libkru.dylib" if sys.platform == "darwin" else "libkru.so"
    library = next(path for folder in kru.__path__ if (path := Path(folder) / name).exists())
    program = tmp_path_factory.mktemp("selftest") / "selftest"
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-pthread", "-o", str(program)]
    command = [compiler, "-std=gnu++17", "-O1", str(SOURCE), *link]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.parametrize("level", LEVELS.get(platform.machine(), ["baseline"]))
def test_every_entry_point_agrees_with_literal_loops(selftest: Path, level: str) -> None:
    def run(cases: int) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KRU_SIMD": level}
        command = [str(selftest), str(cases)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    if f"instruction set {level}," not in run(0).stdout:
        pytest.skip(f"this machine has no {level}")
    result = run(140)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^(\d+) passed, 0 failed$", result.stdout, re.MULTILINE)
    assert passed is not None, result.stdout
    assert int(passed[1]) > 2 * 140


def test_python_mirrors_the_header() -> None:
    assert f"#define KRU_INTERFACE {bindings.INTERFACE}\n" in HEADER.read_text()


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if bindings.library is None:
        pytest.skip("kru has no native library here")
    monkeypatch.setattr(bindings, "INTERFACE", -1)
    with pytest.warns(
        UserWarning, match="another version of the source; install kru again, or run make setup"
    ):
        assert bindings._load() is None
