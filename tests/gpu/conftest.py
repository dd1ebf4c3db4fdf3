"""Tests of the Triton kernels. Triton's interpreter and its compiler need processes of their own.

With KRU_TRITON=cpu and TRITON_INTERPRET=1 the kernels run on the CPU, and the tests of their numbers are collected.
Otherwise those of their compiled code are, and `test_in_interpreter.py` starts the others.
"""

import os
from collections.abc import Iterator

import pytest
import torch

INTERPRETED = ("test_kron.py", "test_scan.py", "test_benchmark.py")
INSIDE = os.environ.get("KRU_TRITON") == "cpu"
collect_ignore = ["test_in_interpreter.py", "test_compiled.py"] if INSIDE else list(INTERPRETED)


@pytest.fixture(autouse=INSIDE)
def _fresh_tensors_are_full_of_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
