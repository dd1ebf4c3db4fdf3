"""Cases in forked children: each with a limit of memory and time, and a crash ends only its child."""

import contextlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

GIB = 2**30
MEMORY = 2 * GIB
"""What a child may allocate, its interpreter and libraries included."""
GROWTH = GIB // 4
"""By how much the memory in use may grow during one case."""
CPU_SECONDS = 20.0
"""What one case may cost."""
PATIENCE = 120.0
"""Seconds without a sign of life, on a busy machine, after which a child counts as hanging."""
BATCH = 100
"""Cases of one child."""


class FoundError(Exception):
    """Something is wrong; the message says what."""


@dataclass(frozen=True)
class Case:
    """One attempt: everything about it follows from these."""

    kind: str
    seed: int
    index: int

    def rng(self) -> random.Random:
        return random.Random(f"{self.kind} {self.seed} {self.index}")

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}-{self.index}".replace(" ", "-")


class Attack(Protocol):
    """A kind of attempt."""

    name: str
    simd: str

    def run(self, case: Case, folder: Path, again: bool) -> str:
        """Try one case in its folder; a few words about it.

        Args:
            again: the folder has the file of a case that failed, to be read again.

        Raises:
            FoundError: something is wrong. Any other exception means the same.
        """


def attempt(
    attack: Attack, cases: Sequence[Case], folder: Path, again: bool = False
) -> Generator[tuple[Case, str], None, None]:
    """Each case with what is wrong, "" if nothing is; of one that failed, the folder still has the files."""
    at = 0
    while at < len(cases):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                os.close(reading)
                _work(attack, cases[at:], folder, again, writing)
            finally:
                os._exit(1)
        os.close(writing)
        before = at
        wrong = ""
        try:
            for answer in _answers(reading, child):
                wrong = answer
                yield cases[at], wrong
                at += 1
                if wrong:
                    break
        finally:
            os.close(reading)
            _kill_group(child)
            _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if not wrong and at < len(cases) and (code or at == before):
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            yield cases[at], f"the process ended: {name} (it counts as hanging after {PATIENCE:.0f} s)"
            at += 1


def _kill_group(child: int) -> None:
    """A child that is at its end, or hangs, and its own children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _answers(reading: int, child: int) -> Iterator[str]:
    rest = b""
    while True:
        ready, _, _ = select.select([reading], [], [], PATIENCE)
        if not ready:
            _kill_group(child)
            return
        part = os.read(reading, 2**16)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _work(attack: Attack, cases: Sequence[Case], folder: Path, again: bool, writing: int) -> None:
    """The child: one answer for each case, then its end."""
    if attack.simd:
        os.environ["KRU_SIMD"] = attack.simd  # read at the first call of a kernel
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    for case in cases:
        if not again:
            empty(folder)
        os.chdir(folder)
        wrong = judged(lambda case=case: attack.run(case, folder, again))
        os.write(writing, json.dumps(wrong).encode() + b"\n")
    os._exit(0)


def judged(work: Callable[[], Any]) -> str:
    """What is wrong with a piece of work: an exception, too much memory, too much time; "" if nothing is."""
    before, began = _reset_peak(), time.process_time()
    try:
        work()
    except FoundError as error:
        return str(error)
    except BaseException:
        return traceback.format_exc()
    growth, seconds = _memory("VmHWM") - before, time.process_time() - began
    if growth > GROWTH:
        return f"took {growth / 2**20:,.0f} MiB"
    if seconds > CPU_SECONDS:
        return f"took {seconds:.1f} s"
    return ""


def empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def write_failure(to: Path, case: Case, simd: str, wrong: str, folder: Path) -> Path:
    """A folder from which `make attack CASE=...` repeats the case."""
    place = to / case.name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, place, symlinks=True)
    about = {"kind": case.kind, "seed": case.seed, "index": case.index, "simd": simd, "wrong": wrong}
    (place / "case.json").write_text(json.dumps(about, indent=1) + "\n")
    print(
        f"FAILED {case.name}: {wrong.strip().splitlines()[-1][:300]}\n  make attack CASE={place}", flush=True
    )
    return place


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
