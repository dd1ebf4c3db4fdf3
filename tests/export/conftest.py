import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small gain nothing from threads, and lose much to them on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
