"""Writing files so that a crash or a full disk leaves either the old file or the new one, never less."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Give `path` the contents `data` in one step; what was there before stays until all of it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # One fixed name: a process that is killed here leaves at most one such file, which the next call reuses.
    unfinished = path.with_name(path.name + ".tmp")
    try:
        with open(unfinished, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Put a directory's entries on disk, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
