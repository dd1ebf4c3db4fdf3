"""Blocks that are freed are there for the next step, without the system in between."""

import subprocess
import sys

import pytest

from kru.training.allocator import keep_freed_memory

# Faults of pages while two blocks, below and above the sizes that glibc maps on their own, are taken and freed.
SCRIPT = """
import resource, sys, torch
from kru.training.allocator import keep_freed_memory

def step():
    kept = torch.ones(5 << 20)
    del kept
    large = torch.ones(25 << 20)

if sys.argv[1] == "keep":
    assert keep_freed_memory()
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="needs glibc")
def test_no_pages_are_cleared_again() -> None:
    def faults(mode: str) -> int:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, timeout=120, check=True
        )
        return int(run.stdout)

    assert faults("keep") < 100
    assert faults("default") > 100
