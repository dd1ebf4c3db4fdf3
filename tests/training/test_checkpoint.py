import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kru.lab.result import read_recipe
from kru.training.checkpoint import Checkpoint, Progress, read_tensors, write_tensors
from kru.training.files import write_atomically

ORIGIN = {"name": "mine", "sizes": [1, 2, 3], "rate": 0.1}


def checkpoint(carried=None):
    weights = {"a.b": torch.randn(3, 4), "c": torch.randn(())}
    state = {0: {"step": torch.tensor(3.0), "square_avg": torch.randn(3, 4)}, 1: {"step": torch.tensor(3.0)}}
    return Checkpoint(ORIGIN, Progress(step=3, best=0.1 + 0.2), weights, {}, state, carried)


@pytest.mark.parametrize(
    "carried", [None, torch.randn(1, 2, 3), (torch.randn(1, 2, 3), torch.randn(1, 2, 3))]
)
def test_everything_comes_back_exactly(carried, tmp_path):
    saved = checkpoint(carried)
    saved.save(tmp_path / "run" / "c.safetensors")
    loaded = Checkpoint.load(tmp_path / "run" / "c.safetensors")
    assert (loaded.origin, loaded.progress) == (ORIGIN, saved.progress)
    assert all(torch.equal(loaded.weights[name], tensor) for name, tensor in saved.weights.items())
    assert set(loaded.optimizer) == {0, 1}
    assert torch.equal(loaded.optimizer[0]["square_avg"], saved.optimizer[0]["square_avg"])
    assert torch.equal(loaded.generator, saved.generator)
    if carried is None:
        assert loaded.carried is None
    elif isinstance(carried, tuple):
        assert all(torch.equal(a, b) for a, b in zip(carried, loaded.carried, strict=True))
    else:
        assert torch.equal(carried, loaded.carried)


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint(broken, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    checkpoint().save(path)
    before = path.read_bytes()

    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if broken == "write":
        monkeypatch.setattr("builtins.open", fail)
    else:
        monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint().save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["c.safetensors"]


def test_write_atomically_replaces(tmp_path):
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


def test_write_atomically_replaces_nothing_but_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(
            ValueError, match="expected a file or a new name, got a folder, a device or a pipe"
        ):
            write_atomically(path, b"one")
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_damaged_and_foreign_files_are_named(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    path = tmp_path / "c.safetensors"
    with pytest.raises(ValueError, match="no such file"):
        Checkpoint.load(path)
    checkpoint().save(path)
    whole = path.read_bytes()
    for length in (0, 5, 200, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="expected a whole safetensors file"):
            Checkpoint.load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="expected a file that kru wrote"):
        read_tensors(path)
    for header, error in [
        ('{"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}', "of types that torch has, got 'F4'"),
        ('{"__metadata__": null}', "expected a file that kru wrote, got format None"),
    ]:
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes("F4" in header))
        with pytest.raises(ValueError, match=error):
            read_tensors(path)
    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(ValueError, match=r"expected a file to read \(Permission denied\)"):
        read_tensors(path)
    monkeypatch.undo()
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="expected a file, got a folder"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("{}", "recipe: expected a table, got None"),
        ('{"recipe": {}, "name": "x"}', "task.name: expected one of"),
        ('{"recipe": [], "name": "x"}', r"recipe: expected a table, got \[\]"),
        ('{"recipe": {"task": {"name": []}}, "name": "x"}', r"task.name: expected one of .*, got \[\]"),
        ('{"recipe": {}, "name": 3}', "name: expected one that a folder can have, got 3"),
        ('{"recipe": {}, "name": "../x"}', "name: expected one that a folder can have, got '../x'"),
        (r'{"recipe": {}, "name": "x\n"}', r"name: expected one that a folder can have, got 'x\\n'"),
    ],
)
def test_headers_without_a_recipe_are_named(header, complaint, tmp_path):
    path = tmp_path / "c.safetensors"
    save_file({"a": torch.zeros(2)}, path, {"format": "kru 1", "kru": header})
    with pytest.raises(ValueError, match=f"c.safetensors: expected a recipe in its header .*{complaint}"):
        read_recipe(path)


@pytest.mark.parametrize(("header", "complaint"), [("", "JSON .*Expecting value"), ("3", "a table .*got 3")])
def test_headers_that_are_no_table_are_refused(header, complaint, tmp_path):
    path = tmp_path / "c.safetensors"
    save_file({"a": torch.zeros(2)}, path, {"format": "kru 1", "kru": header})
    with pytest.raises(ValueError, match=f"c.safetensors: expected {complaint}"):
        read_tensors(path)


@pytest.mark.parametrize(
    "progress", [None, {}, {"step": "three"}, {"step": 3, "rate": None}, {"step": 3, "x": 1}]
)
def test_progress_of_another_kind_is_refused(progress, tmp_path):
    path = tmp_path / "c.safetensors"
    write_tensors(path, {"generator": torch.get_rng_state()}, {"origin": ORIGIN, "progress": progress})
    with pytest.raises(ValueError, match="expected the checkpoint of a run, got another file"):
        Checkpoint.load(path)


def test_a_file_can_be_read_while_a_run_replaces_it(tmp_path):
    path = tmp_path / "c.safetensors"

    def replace(version):
        write_tensors(path, {"a": torch.full((1 + version % 7,), version)}, {"version": version})

    replace(0)
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(lambda: [replace(version) for version in range(1, 300)])
        while not writer.done():
            header, tensors = read_tensors(path)
            assert tensors["a"].tolist() == [header["version"]] * (1 + header["version"] % 7)
    writer.result()
