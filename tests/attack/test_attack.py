"""A selection of `make attack` with a fixed seed, and that the attack notices what it looks for."""

import ctypes
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

wanted = pytest.mark.skipif(
    sys.platform != "linux" or not os.environ.get("KRU_ATTACK"),
    reason="KRU_ATTACK=1 tries it, on Linux: it takes a minute or two",
)
ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
from pathlib import Path
from tests.attack.pool import Case, attempt, write_failure
from tests.attack.test_attack import Faulty
folder, keep = map(Path, sys.argv[1:])
for case, wrong in attempt(Faulty(), [Case("faulty", 1, index) for index in range(7)], folder):
    if wrong:
        write_failure(keep, case, "", wrong, folder)
    print(case.index, wrong.strip().splitlines()[-1] if wrong else "", flush=True)
"""


class Faulty:
    """Everything that may go wrong, one after the other."""

    name, simd = "faulty", ""

    def run(self, case, folder, again) -> str:
        from .command import expect_line, forbid_harm

        forbid_harm(folder)
        (folder / "file").write_text(str(case.index))
        if case.index == 1:
            ctypes.string_at(0)
        if case.index == 2:
            raise KeyError("x")
        if case.index == 3:
            bytearray(600 * 2**20)
        if case.index == 4:
            bytearray(5 * 2**30)
        if case.index == 5:
            pickle.loads(pickle.dumps(os.getcwd))
        if case.index == 6:
            expect_line("")
        return "nothing"


def run(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@wanted
def test_a_selection() -> None:
    said = run("-m", "tests.attack", "--selection", "--seed", 1)
    kills, files, calls = map(int, re.findall(r"([\d,]+) (?:kills|files|calls)", said.replace(",", ""))[-3:])
    assert kills >= 10
    assert files >= 1000
    assert calls >= 500
    assert re.search(r" 0 failed", said)


@wanted
def test_faults_are_noticed(tmp_path) -> None:
    lines = run("-c", SCRIPT, tmp_path / "case", tmp_path / "kept").splitlines()
    found = {int(line.split()[0]): line for line in lines if line[0].isdecimal()}
    assert found[0].strip() == "0"
    for index, what in {
        1: "SIGSEGV",
        2: "KeyError: 'x'",
        3: "took 6",
        4: "MemoryError",
        5: "pickle.find_class",
        6: "a message of 0 characters",
    }.items():
        assert what in found[index], found[index]
    kept = tmp_path / "kept" / "faulty-1-2"
    assert (kept / "file").read_text() == "2"
    assert json.loads((kept / "case.json").read_text())["index"] == 2
