"""Workers of sweeps that are killed or signalled, as forks of this process, which has all of kru loaded.

A start of Python costs more than a small sweep. It reads requests from stdin and answers on stdout, a line of
JSON each: [mode, options, folder to work in, arguments of kru], and [exit code, what was printed]. Modes:

    first-dies WORKERS    one worker begins, the others join it, the first is killed in the middle of its trial
    at-random KILLS SEED  workers are killed at random moments, one after the other; the last one may end
    signal NUMBER TRIAL   a command gets a signal in the middle of a trial; its exit code is printed
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from kru.lab.cli import main
from kru.training.checkpoint import Checkpoint


def begin(arguments):
    child = os.fork()
    if child == 0:
        code = main(arguments)
        sys.stdout.flush()
        os._exit(code)
    return child


def end(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def wait_for_progress(child, arguments, trial=0):
    """Wait until a trial is past its first validation and has a checkpoint."""
    folder = Path(arguments[arguments.index("--out") + 1])
    path = folder / f"trial-{trial:04d}" / "checkpoint.safetensors"
    while not path.exists() or Checkpoint.load(path).progress.step < 6:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the worker ended too early"
        time.sleep(0.02)


def first_dies(arguments, workers):
    first = begin(arguments)
    wait_for_progress(first, arguments)
    others = [begin(arguments) for _ in range(workers - 1)]
    os.kill(first, signal.SIGKILL)
    assert end(first) == -signal.SIGKILL
    return max(map(end, others))


def at_random(arguments, kills, seed):
    chance = random.Random(seed)
    for _ in range(kills):
        child = begin(arguments)
        time.sleep(chance.uniform(0.1, 0.7))
        os.kill(child, signal.SIGKILL)
        end(child)
    return end(begin(arguments))


def signalled(arguments, number, trial):
    child = begin(arguments)
    wait_for_progress(child, arguments, trial)
    os.kill(child, number)
    print(f"exit code {end(child)}", flush=True)
    return 0


MODES = {"first-dies": first_dies, "at-random": at_random, "signal": signalled}


def answer(mode, options, folder, arguments):
    """Run a request in a child of its own, everything that is printed in a file."""
    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            code = 1
            try:
                code = MODES[mode](arguments, *options)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        code = end(child)
        printed.seek(0)
        return code, printed.read()


def warm_up(folder, arguments):
    """Load what is loaded at first use: each child would spend its life on that."""
    os.chdir(folder)
    with open(os.devnull, "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        main([*arguments[:4], "--trials", "1", "--steps", "2", "--out", "warm"])
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


if __name__ == "__main__":
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        if number == 0:
            warm_up(*request[2:])
        print(json.dumps(answer(*request)), flush=True)
