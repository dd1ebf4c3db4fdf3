import os
from pathlib import Path

import pytest
import torch

from kru.lab.data import list_files


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory of the real data, where that is."""
    named = os.environ.get("KRU_DATA")
    directory = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if any(status.state == "missing" for status in list_files(directory)):
        pytest.skip(f"the real data is not all in {directory}: set KRU_DATA to a directory that has it")
    return directory


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
