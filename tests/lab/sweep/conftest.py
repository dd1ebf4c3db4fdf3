"""A small study that takes a moment, and a real PostgreSQL server where there is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.run import RunOptions, train
from kru.lab.sweep.space import load_space

from . import postgres

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


@pytest.fixture(scope="session")
def postgres_server():
    programs = postgres.postgres_programs()
    if programs is None:
        pytest.skip("there is no PostgreSQL server here: on Debian, apt-get install postgresql")
    with postgres.postgres_server(programs) as url:
        yield url


@pytest.fixture(name="postgres")
def database(postgres_server, request):
    """The URL of an empty database."""
    from sqlalchemy import create_engine, text

    name = f"test_{abs(hash(request.node.nodeid))}"
    engine = create_engine(f"{postgres_server}/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{postgres_server}/{name}"
