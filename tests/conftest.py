import pytest
import torch


@pytest.fixture
def one_thread():
    """Models this small gain nothing from threads, and lose much to them on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


TINY = """
batch_size = 4
penalty = 0.1
steps = 60
seed = 3

[task]
name = "copy"
T = 10

[model]
kind = "kru"
hidden_size = 8

[optimizer]
recurrent_scale = 0.1

[schedule]
factor = 0.5

[evaluation]
every = 7
sequences = 40
"""


@pytest.fixture
def tiny(tmp_path, one_thread):
    """The path of a recipe that runs in a second; its test and validation splits are whole, so a little more."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return str(path)
