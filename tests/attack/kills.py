"""Commands that are killed at random moments, as forks of this process, and resumed until they end."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import optuna

from kru.estimators import load
from kru.lab.cli import main
from kru.lab.data import DATASETS
from kru.lab.sweep.storage import Store
from kru.lab.sweep.sweep import look_at
from kru.training.checkpoint import read_tensors
from tests.lab.sweep.postgres import postgres_programs, postgres_server

from .corpus import make
from .pool import PATIENCE, Case, FoundError, empty, note, write_failure

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
CODES = {signal.SIGKILL: (-9,), signal.SIGINT: (130, -2), signal.SIGTERM: (143, -15)}
"""What a command may end with after a signal, besides its usual end."""
TIMES = ("wall_seconds", "seconds", "machine", "made_from", "command")
"""What no two runs have in common."""


@dataclass
class Target:
    """A command and what it leaves.

    Attributes:
        arguments: of `kru`, OUT for the folder.
        result: what has to be as in a run that nobody interrupted.
        weight: how often it is killed.
        again: whether the command can be given again when it has ended.
    """

    name: str
    arguments: list[str]
    result: Callable[[Path, str], Any]
    weight: float
    again: bool = True
    seconds: float = 0.0
    expected: Any = None

    def words(self, out: Path, name: str) -> list[str]:
        return [word.replace("OUT", str(out)).replace("NAME", name) for word in self.arguments]


def comparable(value: Any) -> Any:
    """A JSON value without the times in it."""
    if isinstance(value, dict):
        return {key: comparable(entry) for key, entry in value.items() if key not in TIMES}
    return [comparable(entry) for entry in value] if isinstance(value, list) else value


def files(out: Path, name: str) -> dict[str, Any]:
    """All files of a folder: tensors bit by bit, JSON without times, everything else as it is."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        key = str(path.relative_to(out))
        if (
            path.suffix == ".tmp"
            or key.startswith(".")
            or "checkpoint" in path.name
            or path.suffix in (".lock", ".png")
        ):
            continue
        if path.suffix == ".json":
            found[key] = comparable(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            found[key] = [comparable(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name == "weights.safetensors" or path.parent.name == "weights":
            found[key] = {
                k: sha256(t.numpy().tobytes()).hexdigest() for k, t in read_tensors(path)[1].items()
            }
        elif path.suffix in (".safetensors", ".c", ".h", ".js", ".onnx", ".csv"):
            found[key] = sha256(path.read_bytes()).hexdigest()
    return found


def trials(where: str) -> Callable[[Path, str], Any]:
    """The trials of a sweep: number, values, measure and end of each."""

    def result(out: Path, name: str) -> Any:
        with look_at(name, Store(where.replace("OUT", str(out)))) as study:
            return [(t.number, t.params, t.value, t.state.name) for t in study.get_trials()]

    return result


def expect_whole(out: Path) -> None:
    """No file is torn, at any moment: whole, or only lacking the end of its last line."""
    for path in out.rglob("*"):
        if not path.is_file() or path.name.endswith(".tmp") or path.is_symlink():
            continue
        if any(part.startswith(".") for part in path.relative_to(out).parts):
            continue  # a folder that did not get its name
        try:
            if path.suffix == ".json" and path.stat().st_size:
                json.loads(path.read_bytes())
            elif path.suffix == ".jsonl":
                for line in path.read_bytes().split(b"\n")[:-1]:
                    json.loads(line)
            elif (
                path.name in ("checkpoint.safetensors", "weights.safetensors")
                or path.parent.name == "weights"
            ):
                read_tensors(path)
            elif path.suffix == ".safetensors":
                load(path)
            elif path.suffix == ".db":
                with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                    database.execute("PRAGMA quick_check")
            elif path.suffix == ".json" and not path.stat().st_size:
                raise ValueError("it is empty")
        except Exception as error:
            raise FoundError(f"{path.name} is torn: {error}") from error


def targets(corpus: Path, server: str | None) -> list[Target]:
    recipe, grown = str(corpus / "small.toml"), str(corpus / "grown.toml")
    run = ["--quiet", "--checkpoint-seconds", "0", "--out", "OUT/run"]
    sweep = ["sweep", recipe, "--space", str(corpus / "space.toml"), "--trials", "6", "--steps", "8", "--study", "NAME",
             "--checkpoint-seconds", "0", "--out", "OUT/runs", "--storage"]  # fmt: skip
    few = ["--steps", "12", "--units", "8", "--quiet", "-o", "OUT/model.safetensors"]
    found = [
        Target("train", ["train", recipe, *run, "--steps", "40"], files, 6),
        Target("train-grown", ["train", grown, *run, "--steps", "40", "--tensorboard"], files, 2),
        Target("train-recorded", ["train", recipe, *run, "--steps", "24", "--results", "OUT/results"], files, 2),
        Target("sweep-sqlite", [*sweep, "OUT/s.db"], trials("OUT/s.db"), 2),
        Target("sweep-journal", [*sweep, "OUT/s.journal"], trials("OUT/s.journal"), 2),
        Target(
            "study",
            ["study", "growth", "--task", "jsb", "--seeds", "1", "--epochs", "3", "--runs", "OUT/runs", "--results",
             "OUT/results", "--data-dir", str(corpus / "data")],
            files,
            1,
        ),
        Target("fit", ["fit", str(corpus / "long.csv"), "--target", "label", *few], files, 2),
        Target("fit-sounds", ["fit", str(corpus / "sounds"), "--augment", "2", *few], files, 1),
        Target("fit-text", ["fit", str(corpus / "some.txt"), *few], files, 1),
    ]  # fmt: skip
    for kind in ("c99", "js", "onnx"):
        words = ["export", str(corpus / "classifier.safetensors"), "--to", kind, "-o", "OUT/made"]
        found.append(Target(f"export-{kind}", words, files, 1, again=False))
    if server is not None:
        found.append(Target("sweep-postgresql", [*sweep, server], trials(server), 2))
    return found


@contextmanager
def prepared(work: Path, *, server: bool = True) -> Iterator[list[Target]]:
    """The commands, and what they need."""
    corpus = work / "corpus"
    if not (corpus / "echo-forecaster.safetensors").exists():
        make(corpus)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    music = corpus / "data" / "music" / "JSB_Chorales.mat"
    music.parent.mkdir(parents=True, exist_ok=True)
    content = (corpus / "rolls.mat").read_bytes()
    music.write_bytes(content)
    jsb = DATASETS["jsb"]
    same = replace(jsb.files[0], size=len(content), sha256=sha256(content).hexdigest())
    DATASETS["jsb"] = replace(jsb, files=(same,))
    with ExitStack() as stack:
        programs = postgres_programs() if server else None
        address = None
        if programs is not None:
            url = stack.enter_context(postgres_server(programs))
            address = f"{url}/postgres"
        elif server:
            note("kills: no PostgreSQL server here, its sweeps are left out")
        os.environ["OMP_NUM_THREADS"] = "1"
        known = targets(corpus, address)
        yield known


def measure(target: Target, work: Path) -> None:
    """Run a command once without a kill, here: what is loaded at first use is there for all forks."""
    out = work / f"whole-{target.name}"
    empty(out)
    began = time.monotonic()
    name = f"{target.name}-{work.name}"
    words = target.words(out, name)
    with _silence(out.with_suffix(".said")):
        code = main(words)
    if code:
        raise RuntimeError(f"kru {' '.join(words)}: {out.with_suffix('.said').read_text()}")
    target.seconds = time.monotonic() - began
    target.expected = target.result(out, name)


@contextmanager
def _silence(path: Path) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    there = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(there, 1)
    os.dup2(there, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(there)


def begin(words: list[str], said: Path, real: bool) -> int:
    """A child that runs the command: a fork, or now and then a new interpreter."""
    if real:
        with open(said, "ab") as stream:
            return subprocess.Popen([sys.executable, "-m", "kru", *words], stdout=stream, stderr=stream).pid
    child = os.fork()
    if child:
        return child
    code = 1
    with _silence(said):
        try:
            code = main(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def wait_for(child: int, seconds: float) -> int | None:
    """The exit code, None if it still runs after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def attack(target: Target, case: Case, out: Path) -> int:
    """Kill a command a few times, then let it end; how often it was killed."""
    rng = case.rng()
    empty(out)
    said = out.with_suffix(".said")
    said.unlink(missing_ok=True)
    words = target.words(out, case.name)
    ended, real = 0, rng.random() < 0.01 and target.name != "study"
    slower = 8.0 if real else 0.0
    for _ in range(1 + min(12, int(rng.expovariate(0.2)))):
        if not target.again and (out / "made").exists():
            break
        child = begin(words, said, real)
        moment = rng.uniform(0, 1.1 * target.seconds * rng.choice([0.1, 0.4, 1]) + slower)
        number = rng.choice(SIGNALS)
        code = wait_for(child, moment)
        if code is None:
            os.kill(child, number)
            code = wait_for(child, PATIENCE)
            if code is None:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise FoundError(f"{target.name}: does not end after {number.name}")
            ended += 1
            if code not in (0, *CODES[number]):
                raise FoundError(f"{target.name}: exit code {code} after {number.name}: {_tail(said)}")
        elif code:
            raise FoundError(f"{target.name}: exit code {code} without a signal: {_tail(said)}")
        if b"Traceback" in said.read_bytes():
            raise FoundError(f"{target.name}: {_tail(said)}")
        expect_whole(out)
    if target.again or not (out / "made").exists():
        began = time.monotonic()
        code = wait_for(begin(words, said, False), PATIENCE)
        # The first time was longer, by what is loaded at first use; the machine may be busier now.
        target.seconds = 0.7 * target.seconds + 0.3 * (time.monotonic() - began)
        if code or b"Traceback" in said.read_bytes():
            raise FoundError(f"{target.name}: exit code {code} at last: {_tail(said)}")
    expect_whole(out)
    found = target.result(out, case.name)
    if found != target.expected:
        raise FoundError(
            f"{target.name}: another result than without a kill: {_difference(found, target.expected)}"
        )
    return ended


def _difference(found: Any, expected: Any) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
        return ", ".join(
            f"{n}: {str(found.get(n))[:300]} for {str(expected.get(n))[:300]}" for n in names[:3]
        )
    return f"{str(found)[:600]} for {str(expected)[:600]}"


def _tail(said: Path) -> str:
    return said.read_text(errors="replace")[-1500:]


SELECTED = ("train", "sweep-sqlite", "fit", "export-c99")
"""What is killed where only so many kills are asked for."""


def run(seed: int, work: Path, keep: Path, seconds: float, total: int) -> tuple[Counter[str], int]:
    """Kill commands for so many seconds, or until so many are killed."""
    done: Counter[str] = Counter()
    failed = 0
    with prepared(work, server=not total) as known:
        if total:
            known = [target for target in known if target.name in SELECTED]
        index = 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (not total or sum(done.values()) < total):
            case = Case("kill", seed, index)
            done_here, wrong = one(case, known, work, keep)
            done += done_here
            failed += wrong
            index += 1
    return done, failed


def one(case: Case, known: list[Target], work: Path, keep: Path) -> tuple[Counter[str], int]:
    target = random.Random(case.name).choices(known, [target.weight for target in known])[0]
    out = work / "out" / "folder"
    if target.expected is None:
        measure(target, work)
    try:
        return Counter({f"kill {target.name}": attack(target, case, out)}), 0
    except FoundError as error:
        write_failure(keep, case, "", str(error), work / "out")
        return Counter({f"kill {target.name}": 1}), 1


def repeat(case: Case, work: Path, keep: Path) -> tuple[Counter[str], int]:
    """One case again; its moments fall otherwise on another day, so it is tried a few times."""
    with prepared(work) as known:
        for _ in range(5):
            done, failed = one(case, known, work, keep)
            if failed:
                break
    return done, failed
