"""Two real processes, started by torchrun, against one."""

import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.distributed import HashStore

from kru.lab.cli import main
from kru.lab.recipes.files import load_recipe
from kru.lab.recipes.settings import Recipe
from kru.lab.result import read_result
from kru.lab.trainer import RecipeTrainer
from kru.training.checkpoint import Checkpoint
from kru.training.distributed import Processes, agree_on_name, joined
from kru.training.metrics import read_metrics

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
TRAIN = ["-m", "kru", "train"]
PATIENCE = 400
"""Seconds: enough on a machine that is busy with something else."""


def start(command, **options):
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def wait_for(condition, processes, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        for process in processes:
            assert process.poll() is None, f"ended before {what}: {process.stdout.read()}"
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def finish(process):
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        stop(process)
    return output


def stop(process):
    """End a launcher if it still runs, by a signal that it sends on to its workers, or with them by force."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
            process.kill()
            process.communicate(timeout=60)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def worker(launcher, rank):
    """The process of a rank below a launcher."""
    for child in children(launcher):
        try:
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"RANK=%d" % rank in variables:
            return child
    return None


def step_in(folder):
    path = folder / "checkpoint.safetensors"
    return Checkpoint.load(path).progress.step if path.exists() else 0


def expect_same_run(one, other):
    """The same steps to rounding: both curves and the last weights."""
    first, second = (read_metrics(folder / "metrics.jsonl") for folder in (one, other))
    assert len(first) == len(second)
    for line in (*first, *second):
        del line["seconds"]
    for a, b in zip(first, second, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-5)
    expected, got = (load_file(folder / "checkpoint.safetensors") for folder in (one, other))
    assert expected.keys() == got.keys()
    for name in expected:
        if name.startswith("weights/"):
            assert (expected[name] - got[name]).abs().max() < 1e-3, name


def test_two_processes_take_the_steps_of_one(tiny, tmp_path):
    script = Path(__file__).with_name("two_processes.py")
    process = start([*TORCHRUN, "--standalone", "--nproc-per-node=2", str(script), str(tmp_path), tiny])
    output = finish(process)
    assert process.returncode == 0, output
    assert sorted(path.name for path in (tmp_path / "together").iterdir()) == [
        ".lock",
        "checkpoint.safetensors",
        "metrics.jsonl",
        "result.json",
        "weights.safetensors",
    ]
    assert main(["train", tiny, "--quiet", "--out", str(tmp_path / "alone")]) == 0
    expect_same_run(tmp_path / "alone", tmp_path / "together")
    results = [read_result(tmp_path / name / "result.json") for name in ("alone", "together")]
    assert results[0]["test"] == pytest.approx(results[1]["test"], rel=1e-4)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds processes in /proc, which is not here"
)


@needs_proc
def test_killed_stopped_and_gone_on_with_by_one_process(tiny, tmp_path):
    """Rank 1 is killed and torchrun starts both again; a signal then stops both; one process ends the run."""
    out = tmp_path / "run"
    arguments = [tiny, "--steps", "100000", "--checkpoint-seconds", "0", "--out", str(out)]
    process = start([*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=2", *TRAIN, *arguments])
    try:
        wait_for(lambda: step_in(out) > 20, [process], "the first steps")
        killed = worker(process.pid, 1)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: worker(process.pid, 1) not in (None, killed), [process], "a restart")
        reached = step_in(out)
        wait_for(lambda: step_in(out) > reached + 20, [process], "steps after the restart")
        process.send_signal(signal.SIGTERM)
        output = finish(process)
    finally:
        stop(process)
    # Only one process reports.
    assert output.count("resuming from step") == 1, output
    assert "stopped with a checkpoint" in output, output
    stopped = step_in(out)
    assert stopped > reached
    end = str(stopped + 10)
    assert main(["train", tiny, "--quiet", "--steps", end, "--out", str(out), "--resume"]) == 0
    assert main(["train", tiny, "--quiet", "--steps", end, "--out", str(tmp_path / "alone")]) == 0
    expect_same_run(tmp_path / "alone", out)


@pytest.fixture
def two_hosts():
    """The names and addresses of two network namespaces, joined by a cable of their own."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    names = [f"kru{os.getpid()}{side}" for side in "ab"]
    addresses = ["198.51.100.1", "198.51.100.2"]

    def ip(*arguments, check=True):
        return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)

    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip(
                "link",
                "add",
                names[0],
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                names[1],
                "netns",
                names[1],
            )
            for name, address in zip(names, addresses, strict=True):
                ip("-n", name, "address", "add", f"{address}/30", "dev", name)
                ip("-n", name, "link", "set", name, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces can't be set up here: {error.stderr.strip()}")
        yield list(zip(names, addresses, strict=True))
    finally:
        for name in names:
            ip("netns", "delete", name, check=False)


@needs_proc
def test_two_hosts_train_together_and_survive_a_kill(tiny, tmp_path, two_hosts):
    out = tmp_path / "run"
    arguments = [tiny, "--steps", "200", "--checkpoint-seconds", "0", "--quiet", "--out", str(out)]
    launchers = []
    for number, (name, address) in enumerate(two_hosts):
        meeting = [f"--rdzv-endpoint={two_hosts[0][1]}:29411", "--rdzv-backend=c10d", "--rdzv-id=kru"]
        # On real hosts their names tell this; these two share one.
        meeting.append(f"--rdzv-conf=is_host={int(number == 0)}")
        hosts = ["--nnodes=2", "--nproc-per-node=1", "--max-restarts=3", f"--local-addr={address}"]
        # gloo would otherwise take the interface that the host's name stands for.
        here = ["ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME={name}"]
        launchers.append(start([*here, *TORCHRUN, *hosts, *meeting, *TRAIN, *arguments]))
    try:
        wait_for(lambda: step_in(out) > 20, launchers, "the first steps")
        killed = next(pid for launcher in launchers if (pid := worker(launcher.pid, 1)))
        os.kill(killed, signal.SIGKILL)
        outputs = [finish(launcher) for launcher in launchers]
    finally:
        for launcher in launchers:
            stop(launcher)
    assert [launcher.returncode for launcher in launchers] == [0, 0], outputs
    assert main(["train", tiny, "--quiet", "--steps", "200", "--out", str(tmp_path / "alone")]) == 0
    expect_same_run(tmp_path / "alone", out)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_new_name_is_agreed_on_in_spite_of_what_is_left_over(count):
    """Threads stand for processes, which begin at different moments, after earlier starts that ended anywhere."""
    store = HashStore()
    chance = random.Random(count)
    used = set()

    def process(rank, delay):
        time.sleep(delay)
        return agree_on_name(store, rank, count)

    for _ in range(8):
        # An earlier start in which some processes came some of the way.
        for rank in range(count):
            if chance.random() < 0.5:
                store.set(f"kru/{rank}/here", secrets.token_hex(8))
            if chance.random() < 0.3:
                store.set(f"kru/{rank}/accepted", store.get("kru/offer") if used else "none")
        with ThreadPoolExecutor(count) as pool:
            delays = [chance.uniform(0, 0.1) for _ in range(count)]
            names = set(pool.map(process, range(count), delays))
        assert len(names) == 1
        assert not names & used
        used |= names


def test_more_processes_than_sequences_are_refused(tiny):
    recipe: Recipe = load_recipe(tiny)
    with pytest.raises(
        ValueError, match="batch-size: expected at least a sequence for each of the 5 processes"
    ):
        RecipeTrainer(recipe, recipe.task.load(), processes=Processes(1, 5))


def test_without_torchrun_there_is_one_process():
    with joined() as processes:
        assert (processes.rank, processes.count, processes.is_first) == (0, 1, True)


def test_a_device_that_is_not_here_is_named(monkeypatch, tiny, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["train", tiny, "--device", "cuda"]) == 2
    assert "device: expected one that is here, got cuda" in capsys.readouterr().err
