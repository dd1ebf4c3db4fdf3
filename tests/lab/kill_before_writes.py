"""Run `kru` on copies of a folder, killed before its first write there, its second, ...: FOLDER COPY ARGUMENTS...

The folder follows the last argument, which is --out. A write is a file that is replaced or removed: what the folder
holds changes in such steps only, apart from lines that are added to metrics.jsonl. Each copy is named after the number
of its write. For each kill it prints the name of the file that was not written and the copy, until one run ends.
"""

import os

# Before torch is loaded: OpenMP's threads don't live on in a fork, which would wait for them for ever.
os.environ["OMP_NUM_THREADS"] = "1"

import itertools
import shutil
import signal
import sys
from pathlib import Path

from kru.lab.cli import main


def kill_before(write, folder):
    """End this process as kill -9 does, before it replaces or removes a file in the folder so many times."""
    seen = itertools.count(1)

    def hook(event, arguments):
        if event not in ("os.rename", "os.remove"):
            return
        path = Path(os.fsdecode(arguments[1 if event == "os.rename" else 0]))
        if path.parent == folder and next(seen) == write:
            os.write(1, f"before {path.name} {folder}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def run():
    source, copy, *arguments = sys.argv[1:]
    for write in itertools.count(1):
        folder = Path(f"{copy}{write}")
        shutil.copytree(source, folder)
        child = os.fork()
        if child == 0:
            kill_before(write, folder)
            os._exit(main([*arguments, str(folder)]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL:
            return code


if __name__ == "__main__":
    sys.exit(run())
