"""Files that survive crashes: written whole or not at all, and locks that end with their process."""

import errno
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Give `path` the contents `data` in one step; what was there before stays until all of it is on disk.

    Raises:
        ValueError: there is something else than a file, such as a folder or the device /dev/null.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: expected a file or a new name, got a folder, a device or a pipe")
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


def expect_folder(path: Path) -> None:
    """Raise if no files can be written to this folder, which need not be there yet and is not made here.

    For what takes long before it writes, or prints before: a wrong path should be said first.

    Raises:
        ValueError: it, or where it would have to be made, is no folder that this process may write to.
    """
    for place in (path, *path.parents):
        try:
            place.stat()
            reason = errno.ENOTDIR if not place.is_dir() else 0
            reason = reason or (0 if os.access(place, os.W_OK | os.X_OK) else errno.EACCES)
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = error.errno or errno.EINVAL
        if reason:
            raise ValueError(f"{path}: expected a folder to write to ({os.strerror(reason)})")
        return


def sync_directory(path: Path) -> None:
    """Put a directory's entries on disk, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path, *, wait: bool) -> int | None:
    """Lock a file, made if there is none, against other processes; None if one has it and `wait` is False.

    The lock ends at the latest with the process, however that ends, kill -9 included. It holds on one machine
    and over NFS. Where the system has no such locks (Windows), nothing is locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        import fcntl
    except ImportError:
        return descriptor
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unlock_file(descriptor: int) -> None:
    """Give up a lock that `lock_file` returned."""
    os.close(descriptor)
