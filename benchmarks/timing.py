"""Interleaved timing: contestants take turns in one run and so meet the same state of the machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Case:
    """One row: callables by name, and the ratios (slower name, faster name, at least) that it should show.

    `again`: each turn begins with a call that is not timed, so that what is timed finds the memory of a call of its own
    before it, as a step of a training run does, and not that of another contestant.
    """

    name: str
    contestants: dict[str, Callable[[], object]]
    targets: list[tuple[str, str, float]] = field(default_factory=list)
    again: bool = False


@dataclass
class Timing:
    median: float
    minimum: float
    rounds: int


def measure(
    case: Case, seconds: float, smallest: float = 2e-3, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Timing]:
    """Seconds per call of each contestant: at least two rounds each, more while the case's time lasts.

    A round runs a contestant often enough to take `smallest` seconds. Contestants that take longer than a
    third of the case's time in one call are run twice and then left out of further rounds. For what runs on one thread
    alone, `time.thread_time` as the clock leaves out what other programs took of the machine.
    """
    repeats, slow = {}, set()
    for name, call in case.contestants.items():
        call()
        start = clock()
        call()
        once = clock() - start
        repeats[name] = max(1, int(smallest / once))
        if once > seconds / 3:
            slow.add(name)
    times: dict[str, list[float]] = {name: [] for name in case.contestants}
    start, rounds = time.perf_counter(), 0
    while rounds < 2 or (time.perf_counter() - start < seconds and rounds < 200):
        for name, call in case.contestants.items():
            if rounds >= 2 and name in slow:
                continue
            if case.again:
                call()
            begin = clock()
            for _ in range(repeats[name]):
                call()
            times[name].append((clock() - begin) / repeats[name])
        rounds += 1
    return {name: Timing(median(values), min(values), len(values)) for name, values in times.items()}
