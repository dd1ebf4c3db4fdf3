"""Run `kru train` in a child process and kill it at random moments, then let it end: KILLS SEED ARGUMENTS...

A child is a fork of this process, so that many kills don't cost as many starts of Python. A moment is a random step,
and then a little random time: a clock alone would find a fast machine's run already at its end. It prints after how
many steps each child was killed.
"""

import os

# Before torch is loaded: OpenMP's threads don't live on in a fork, which would wait for them for ever.
os.environ["OMP_NUM_THREADS"] = "1"

import random
import signal
import sys
import time
from pathlib import Path

from kru.lab.cli import main
from kru.training.checkpoint import Checkpoint


def begin(arguments):
    child = os.fork()
    if child == 0:
        os._exit(main(arguments))
    return child


def ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def step(folder):
    path = folder / "checkpoint.safetensors"
    return Checkpoint.load(path).progress.step if path.exists() else 0


def run():
    kills, seed, *arguments = sys.argv[1:]
    last = int(arguments[arguments.index("--steps") + 1])
    folder = Path(arguments[arguments.index("--out") + 1])
    chance = random.Random(int(seed))
    # Whatever is loaded at first use is loaded before the forks: each child would spend its life on that.
    main([*arguments[:2], "--steps", "2", "--quiet", "--out", f"{folder}-warm"])
    for target in sorted(chance.randrange(last) for _ in range(int(kills))):
        child = begin(arguments)
        while step(folder) < target and not ended(child):
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(step(folder))
    _, status = os.waitpid(begin(arguments), 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(run())
