"""A small study that takes a moment, and a real PostgreSQL server where there is one."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.run import RunOptions, train
from kru.lab.sweep.space import load_space

RECIPE = """
batch_size = 2
penalty = 0.1
steps = 24
seed = 3

[task]
name = "music"
collection = "{rolls}"

[model]
kind = "kru"
hidden_size = 8
factors = [2, 2, 2]

[optimizer]
recurrent_scale = 0.1

[evaluation]
every = 4
"""
SPACE = """
penalty = {low = 1e-3, high = 1.0, log = true}
optimizer.lr = {low = 1e-3, high = 1e-1, log = true}
model.factors = {choices = [[2, 2, 2], [8]]}
"""


@pytest.fixture
def small(tmp_path, monkeypatch, one_thread):
    """The arguments of a small sweep in the folder that is now the current one: random piano rolls."""
    rng = np.random.default_rng(0)
    cells = {}
    for name, count in (("traindata", 6), ("validdata", 2), ("testdata", 2)):
        cells[name] = np.empty((1, count), object)
        for index in range(count):
            cells[name][0, index] = (rng.random((6, 88)) < 0.05).astype(np.uint8)
    scipy.io.savemat(tmp_path / "rolls.mat", cells)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(RECIPE.format(rolls=tmp_path / "rolls.mat"))
    Path("space.toml").write_text(SPACE)
    return ["sweep", "small.toml", "--space", "space.toml"]


@pytest.fixture
def alone():
    """What `kru train` gives for a trial of the small sweep that nothing has interrupted."""

    def value(trial, steps):
        recipe = load_recipe("small.toml")
        space = load_space(Path("space.toml"), recipe)
        whole = with_budget(space.apply(recipe, trial.params), steps=steps)
        return train(whole, "small.toml", RunOptions(Path("alone"), quiet=True))["valid"]

    return value


@pytest.fixture(scope="session")
def fork_server():
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_workers.py"))],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield server
        server.kill()


@pytest.fixture
def forks(fork_server, tmp_path):
    """Run one of the modes of fork_workers.py; what was printed."""

    def run(mode, *options, arguments):
        request = [mode, options, str(tmp_path), arguments]
        fork_server.stdin.write(json.dumps(request) + "\n")
        fork_server.stdin.flush()
        code, printed = json.loads(fork_server.stdout.readline())
        assert code == 0, printed
        return printed

    return run


def postgres_programs():
    """The folder of initdb and postgres: on the PATH, or where Debian puts them."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    folders += [Path(found).parent] if found else []
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgres_server():
    """A server of its own in a temporary folder, as a user without rights, since root may not run one."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("there is no PostgreSQL server here: on Debian, apt-get install postgresql")
    user = {}
    folder = Path(tempfile.mkdtemp(prefix="kru-postgres-"))
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    data = folder / "data"
    try:
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "kru", "-A", "trust", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **user,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", folder, "-h", "127.0.0.1", "-p", str(port), "-F"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **user,
        )
        try:
            wait = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-t", "30"]
            while subprocess.run(wait, check=False, capture_output=True).returncode:
                assert server.poll() is None, "the PostgreSQL server did not start"
            yield f"postgresql+psycopg://kru@127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGQUIT)  # at once, whoever is connected
            server.wait()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgres(postgres_server, request):
    """The URL of an empty database."""
    from sqlalchemy import create_engine, text

    name = f"test_{abs(hash(request.node.nodeid))}"
    engine = create_engine(f"{postgres_server}/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{postgres_server}/{name}"
