"""`kru --version`, `kru doctor`, quick help, and tracebacks on request, as a user meets them."""

import os
import re
import subprocess
import sys

import pytest

from kru.ops import bindings
from kru_command import COMMANDS


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_needs_neither_torch_nor_tyro() -> None:
    code = "import sys, kru_command; sys.argv[1:] = ['--help']; kru_command.main(); print(*sys.modules)"
    *text, modules = run("-c", code).stdout.splitlines()
    assert all(any(line.split()[:1] == [name] for line in text) for name in COMMANDS)
    assert not {"torch", "tyro", "numpy", "kru"} & set(modules.split())


def test_help_into_a_closed_pipe() -> None:
    code = "import sys, kru_command; sys.exit(kru_command.main())"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_version() -> None:
    done = run("-m", "kru", "--version")
    assert done.returncode == 0, done.stderr
    for expected in (
        r"^kru \d+\.\d+",
        r"^torch \d",
        r"^native kernels: ",
        r"^GPU kernels: ",
        r"^threads: \d+ of",
    ):
        assert re.search(expected, done.stdout, re.MULTILINE), expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"KRU_NATIVE": "0"}, "KRU_NATIVE=0 switches it off"),
        ({"KRU_SIMD": "baseline"}, "KRU_SIMD=baseline limits the kernels to baseline"),
        ({"KRU_DATA": "nowhere-at-all"}, "no data folder nowhere-at-all"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_doctor_names_what_is_wrong(variables: dict[str, str], message: str) -> None:
    if "KRU_SIMD" in variables and bindings.simd() not in ("avx512", "avx2"):
        pytest.skip("this machine has one instruction set")
    done = run("-m", "kru", "doctor", **variables)
    assert message in done.stdout, done.stdout + done.stderr
    assert done.returncode == int("\nslow: " in done.stdout)


def test_one_thread_is_noticed() -> None:
    found = run(
        "-c",
        "import kru.lab.machine as m; m._cores = lambda: 4; print(m._about_threads())",
        OMP_NUM_THREADS="1",
    )
    assert "one thread on 4 cores" in found.stdout
    assert "OMP_NUM_THREADS=1: unset it" in found.stdout


def test_debug_shows_the_traceback() -> None:
    short, long = (run("-m", "kru", "dance", KRU_DEBUG=value).stderr for value in ("0", "1"))
    assert short.count("\n") == 1
    assert long.startswith("Traceback")
    assert long.endswith(short)
