from collections.abc import Iterator

import pytest
import torch

collect_ignore = [
    "agreement.py",
    "direct_calls.py",
    "odd_tensors.py",
    "peak_memory.py",
]  # scripts for processes of their own


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small products wait for their threads on a busy machine. Tests of threads ask for more themselves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
