import contextlib
import errno
import multiprocessing
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kru.lab.result import read_recipe
from kru.training.checkpoint import Checkpoint, Progress, read_tensors, write_tensors
from kru.training.checksum import checksum
from kru.training.files import lock_file, unlock_file, write_atomically

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


def test_write_atomically_follows_no_link_and_removes_what_was_left_over(tmp_path, monkeypatch):
    (tmp_path / "victim").write_bytes(b"kept")
    path = tmp_path / "file"
    for name in ("file.tmp", "file.0123456789abcdef.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0123456789abcdef")
    with pytest.raises(FileExistsError):
        write_atomically(path, b"one")
    monkeypatch.undo()
    (tmp_path / "file.00000000000000aa.tmp").write_bytes(b"of a killed process")
    write_atomically(path, b"one")
    assert (tmp_path / "victim").read_bytes() == b"kept"
    assert path.read_bytes() == b"one"
    assert not (tmp_path / "file.00000000000000aa.tmp").exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_modes_follow_the_umask(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"one")
        unlock_file(lock_file(tmp_path / "lock", wait=True))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


def test_a_lock_follows_no_link(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        lock_file(tmp_path / "lock", wait=False)
    assert not (tmp_path / "elsewhere").exists()


def _write_many(path, letter):
    for size in range(1, 400):
        write_atomically(path, letter * 1000 * (size % 7 + 1))


def test_two_processes_that_write_one_file_never_tear_it(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"aaa")
    writers = [
        multiprocessing.get_context("fork").Process(target=_write_many, args=(path, x)) for x in (b"a", b"b")
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        content = path.read_bytes()
        assert content
        assert set(content) in ({ord("a")}, {ord("b")})
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert os.listdir(tmp_path) == ["file"]


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


def test_any_flipped_bit_of_a_tensor_or_of_the_header_is_noticed(tmp_path):
    path = tmp_path / "c.safetensors"
    checkpoint(torch.randn(1, 2, 3)).save(path)
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    chance = random.Random(0)
    # All of the header, and some of the 40,000 bits of the tensors.
    places = [*range(end), *(chance.randrange(end, len(whole)) for _ in range(300))]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with contextlib.suppress(ValueError):
            loaded = Checkpoint.load(path)
            # Outside of the checksum are padding and the form of the JSON itself.
            assert place < end
            assert checksum(_tensors(loaded)) == checksum(_tensors(checkpoint_of(path, whole)))
            assert loaded.progress == checkpoint_of(path, whole).progress


def checkpoint_of(path, content):
    path.write_bytes(content)
    return Checkpoint.load(path)


def _tensors(loaded):
    return {**loaded.weights, "generator": loaded.generator, "carried": loaded.carried}


def test_files_of_earlier_versions_have_no_checksum_and_still_load(tmp_path):
    path = tmp_path / "c.safetensors"
    save_file({"a": torch.ones(2)}, path, {"format": "kru 1", "kru": "{}"})
    header, tensors = read_tensors(path)
    assert header == {}
    assert tensors["a"].tolist() == [1, 1]
    save_file({"a": torch.ones(2)}, path, {"format": "kru 2", "kru": "{}"})
    with pytest.raises(ValueError, match="expected contents with the SHA-256 in its header, got others"):
        read_tensors(path)
