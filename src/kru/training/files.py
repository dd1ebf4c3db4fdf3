"""Files that survive crashes: written whole or not at all, and locks that end with their process."""

import contextlib
import errno
import glob
import os
import secrets
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

UNFINISHED = ".tmp"
"""How the names of files end that are not whole yet."""
CHUNK = 2**26
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""For `os.open`: fail on a symbolic link, which may lead anywhere."""


def write_atomically(path: Path, data: bytes) -> None:
    """Give `path` the contents `data` in one step; what was there before stays until all of it is on disk.

    Raises:
        ValueError: there is something else than a file, such as a folder or the device /dev/null.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: expected a file or a new name, got a folder, a device or a pipe")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left_over(path)
    unfinished, descriptor = _create_unfinished(path)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest[:CHUNK]) :]
        os.fsync(descriptor)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def _create_unfinished(path: Path) -> tuple[Path, int]:
    """A new file beside `path`, under a name that nobody can guess, locked for as long as its descriptor is open."""
    while True:
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
        # Never a file or a link that is there already; the umask says who may read.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666)
        _lock(descriptor, wait=True)
        # Before it was locked, another writer could take it for one that was left over.
        if os.fstat(descriptor).st_nlink:
            return unfinished, descriptor
        os.close(descriptor)


def remove_left_over(path: Path) -> None:
    """Remove what killed processes left of files that were to become `path`: those which nobody has locked."""
    if fcntl is None:
        return
    for left in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 16}{UNFINISHED}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_WRONLY | os.O_NONBLOCK | NO_LINK)
            try:
                if _lock(descriptor, wait=False):
                    left.unlink()
            finally:
                os.close(descriptor)


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
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | NO_LINK, 0o666)
    try:
        if _lock(descriptor, wait=wait):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file; whether that was possible. Where the system has no such locks, it always is."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def unlock_file(descriptor: int) -> None:
    """Give up a lock that `lock_file` returned."""
    os.close(descriptor)
