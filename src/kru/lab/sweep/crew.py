"""Several workers on one machine, as processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from kru.lab.run import RunError
from kru.lab.sweep.storage import VARIABLE
from kru.training.interrupt import Interrupted, Interruptible

POLL = 0.1


def run_crew(arguments: Sequence[str], workers: int, storage: str) -> int:
    """Start so many workers, wait until they are done; the exit code of one that failed, else 0.

    A worker that is killed is not replaced: the others take up its trial.

    Args:
        arguments: of `kru`, for one worker, without the storage.
        storage: which workers read from their environment: it may be a URL with a password.

    Raises:
        Interrupted: a signal came; the workers have stopped, each with a checkpoint.
        RunError: all workers were killed.
    """
    command = [sys.executable, "-m", "kru", *arguments, "--workers", "1", "--parent", str(os.getpid())]
    # Workers that each have a thread for every core would wait for each other.
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    environment = {"OMP_NUM_THREADS": threads, **os.environ, VARIABLE: storage}
    with Interruptible() as stop:
        # A session of its own: Ctrl-C in the terminal reaches this process alone, which hands it on once.
        crew = [subprocess.Popen(command, env=environment, start_new_session=True) for _ in range(workers)]
        try:
            return _wait(crew, stop)
        finally:
            _signal(crew, signal.SIGTERM)
            for worker in crew:
                worker.wait()


def _wait(crew: Sequence["subprocess.Popen[bytes]"], stop: Interruptible) -> int:
    killed: set[int] = set()
    while any(worker.poll() is None for worker in crew):
        try:
            stop.check()
        except Interrupted as interrupted:
            _signal(crew, interrupted.signal)
            for worker in crew:
                worker.wait()
            raise
        for worker in crew:
            code = worker.poll()
            if code in (1, 2):
                return code
            if code and worker.pid not in killed:
                killed.add(worker.pid)
                print(f"a worker was ended ({_reason(code)}); its trial goes to the others", file=sys.stderr)
        time.sleep(POLL)
    codes = [worker.returncode for worker in crew]
    if 0 not in codes:
        failed = [code for code in codes if code in (1, 2)]
        if failed:
            return failed[0]
        raise RunError(f"all workers ended ({_reason(codes[-1])}); run the same command to resume")
    return 0


def _signal(crew: Sequence["subprocess.Popen[bytes]"], number: int) -> None:
    for worker in crew:
        if worker.poll() is None:
            worker.send_signal(number)


def _reason(code: int) -> str:
    return f"signal {-code if code < 0 else code - 128}"
