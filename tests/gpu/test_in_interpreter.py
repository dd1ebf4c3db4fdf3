"""Starts the tests of the kernels' numbers in processes of their own, where Triton interprets the kernels."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import INTERPRETED

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed; it exists for Linux x86-64"
)


@pytest.mark.timeout(1800)  # a whole file of tests, on a machine that may be busy
@pytest.mark.parametrize("name", INTERPRETED)
def test_numbers(name: str) -> None:
    variables = {**os.environ, "KRU_TRITON": "cpu", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-n0",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).with_name(name)),
    ]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
