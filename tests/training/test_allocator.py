"""Blocks that are freed are there for the next step, without the system in between."""

import subprocess
import sys

import pytest

from kru.training.allocator import keep_freed_memory

# Faults of pages while two blocks, below and above the sizes that glibc maps on their own, are taken and freed in each
# of five steps. Blocks may find their place only in the second or third step, when what is between them has its own.
SCRIPT = """
import resource, sys, torch
from kru.training.allocator import keep_freed_memory

def step():
    kept = torch.ones(5 << 20)
    del kept
    large = torch.ones(25 << 20)

if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
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
    assert faults("default") > 5 * 20_000  # the larger block has 25,600 pages
