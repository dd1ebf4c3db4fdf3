"""`make attack`: try to break what docs/reliability.md promises, for some minutes or with some counts.

Each case follows from its kind, the seed and its number. One that fails is written to build/attack, from where
`make attack CASE=build/attack/NAME` repeats it.
"""

import argparse
import os
import sys

# Before torch is loaded: OpenMP's threads do not live on in a fork, which would wait for them for ever.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("MPLBACKEND", "agg")

import json
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from . import calls, files, invalid, kills
from .corpus import make
from .pool import BATCH, Attack, Case, attempt, note, write_failure

SIMD = ("avx512", "avx2", "baseline")
SHARE = {"kills": 0.3, "files": 0.3, "calls": 0.4}
"""Of the time."""
COUNTS = {"product": 3, "recurrence": 4, "chain": 4, "layers": 1, "operators": 0.5, "forks": 0.3, "features": 1,
          "direct": 12, "checked": 8, "odd": 3}  # fmt: skip
"""How often the kinds of calls are tried, in proportion."""
SELECTION = {"kills": 16, "files": 1600, "calls": 1200}
"""What `make test` tries."""


def levels() -> list[str]:
    """The instruction sets of this machine's kernels that can be chosen here."""
    from kru.lab.machine import versions  # noqa: F401  (loads what a command loads)

    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    here = [level for level in SIMD[:2] if ("avx512f" if level == "avx512" else "avx2") in flags]
    return [*here, "baseline"] if os.uname().machine == "x86_64" else [""]


def call_attacks() -> dict[Attack, float]:
    functions = {**calls.FUNCTIONS, **invalid.FUNCTIONS}
    return {
        calls.Calls(name, functions[name], simd): weight / len(levels())
        for name, weight in COUNTS.items()
        for simd in levels()
    }


class Round:
    """Batches of cases, until the time is over or as many are done as were asked for."""

    def __init__(self, seed: int, work: Path, keep: Path) -> None:
        self.seed, self.work, self.keep = seed, work, keep
        self.done: Counter[str] = Counter()
        self.failed = 0

    def run(self, attacks: dict[Attack, float], deadline: float, total: int) -> None:
        at = Counter({self._key(attack): 0 for attack in attacks})
        weight = sum(attacks.values())
        while time.monotonic() < deadline and (not total or sum(at.values()) < total):
            # The one that is furthest behind its share.
            attack = min(attacks, key=lambda a: at[self._key(a)] / attacks[a])
            key = self._key(attack)
            count = max(1, min(BATCH, round(BATCH * attacks[attack] / max(attacks.values()))))
            if total:
                count = min(count, max(1, round(total * attacks[attack] / weight)))
            # Levels of instructions have cases of their own.
            numbers = range(at[key], at[key] + count)
            cases = [
                Case(f"{attack.name}{'-' * bool(attack.simd)}{attack.simd}", self.seed, i) for i in numbers
            ]
            self._batch(attack, cases, deadline)
            at[key] += count

    def _batch(self, attack: Attack, cases: list[Case], deadline: float) -> None:
        attempts = attempt(attack, cases, self.work / "case")
        for case, wrong in attempts:
            self.done[attack.name] += 1
            if wrong:
                self.failed += 1
                write_failure(self.keep, case, attack.simd, wrong, self.work / "case")
            if time.monotonic() > deadline + 60:
                attempts.close()
                return

    @staticmethod
    def _key(attack: Attack) -> str:
        return f"{attack.name} {attack.simd}"


def in_child(work: "Iterator[tuple[Counter[str], int]]") -> tuple[Counter[str], int]:
    """What a piece of work gives in a child of its own: it loads, warms up and sets what the others must not see."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            done, failed = next(work)
            os.write(writing, json.dumps([done, failed]).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as said:
        answer = said.read()
    os.waitpid(child, 0)
    if not answer:
        return Counter(), 1
    done, failed = json.loads(answer)
    return Counter(done), failed


def _calls(
    seed: int, work: Path, keep: Path, seconds: float, total: int
) -> Iterator[tuple[Counter[str], int]]:
    doing = Round(seed, work, keep)
    doing.run(call_attacks(), time.monotonic() + seconds, total)
    yield doing.done, doing.failed


def file_attacks(work: Path) -> dict[Attack, float]:
    corpus = work / "corpus"
    if not (corpus / "echo-forecaster.safetensors").exists():
        child = os.fork()  # which may call kernels and start threads
        if child == 0:
            make(corpus)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("the files to mutate could not be made")
    slow = ("run", "journal", "sqlite")
    return {files.Files(f"file {kind}", corpus): 0.1 if kind in slow else 1.0 for kind in files.KINDS}


def _files(
    seed: int, work: Path, keep: Path, seconds: float, total: int
) -> Iterator[tuple[Counter[str], int]]:
    doing = Round(seed, work, keep)
    attacks = file_attacks(work)
    doing.run(attacks, time.monotonic() + seconds, total)
    yield doing.done, doing.failed


def _kills(
    seed: int, work: Path, keep: Path, seconds: float, total: int
) -> Iterator[tuple[Counter[str], int]]:
    yield kills.run(seed, work, keep, seconds, total)


def again(place: Path, work: Path) -> int:
    """Repeat a case that failed."""
    about = json.loads((place / "case.json").read_text())
    case = Case(about["kind"], about["seed"], about["index"])
    if about["kind"].startswith("kill"):
        failed = kills.repeat(case, work, work)[1]
        print("the same again" if failed else "nothing wrong")
        return bool(failed)
    name = about["kind"].removesuffix("-" + about["simd"])
    found: Attack
    if name.startswith("file "):
        found = next(attack for attack in file_attacks(work) if attack.name == name)
    else:
        functions = {**calls.FUNCTIONS, **invalid.FUNCTIONS}
        found = calls.Calls(name, functions[name], about["simd"])
    for _, wrong in attempt(found, [case], place.resolve(), again=name.startswith("file ")):
        print(wrong or "nothing wrong")
        return bool(wrong)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--case", type=Path, help="folder of a case that failed")
    parser.add_argument("--only", choices=list(SHARE), help="one part of it")
    parser.add_argument("--selection", action="store_true", help="what make test tries: counts, not minutes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="kru-attack-") as folder:
        work = Path(folder).resolve()
        if options.case:
            return again(options.case, work)
        seed = options.seed or int.from_bytes(os.urandom(3))
        print(f"seed {seed}", flush=True)
        parts = {"files": _files, "kills": _kills, "calls": _calls}
        if options.only:
            parts = {options.only: parts[options.only]}
        done: Counter[str] = Counter()
        failed, began = 0, time.monotonic()
        keep = Path("build/attack").resolve()
        for name, part in parts.items():
            share = SHARE[name] / sum(SHARE[other] for other in parts)
            seconds = 1e9 if options.selection else 60 * options.minutes * share
            total = SELECTION[name] if options.selection else 0
            counted, wrong = in_child(part(seed, work, keep, seconds, total))
            done += counted
            failed += wrong
            note(f"{name}: {sum(counted.values()):,} in {time.monotonic() - began:,.0f} s so far")
        for name, count in sorted(done.items()):
            print(f"  {name:24} {count:9,}")
        ended = sum(count for name, count in done.items() if name.startswith("kill"))
        mutated = sum(count for name, count in done.items() if name.startswith("file"))
        print(
            f"seed {seed}: {ended:,} kills, {mutated:,} files, {sum(done.values()) - ended - mutated:,} calls, "
            f"{failed} failed, {(time.monotonic() - began) / 60:.1f} minutes"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
