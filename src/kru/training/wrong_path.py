"""Errors of the system that a path is to blame for."""

import errno

_CAUSES = (
    errno.ENOENT,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENOTEMPTY,
    errno.EBUSY,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EINVAL,
)


def is_wrong_path(error: OSError) -> bool:
    """Whether a path cannot be what it was given for; other errors, such as a full disk, are nobody's mistake.

    >>> is_wrong_path(NotADirectoryError(errno.ENOTDIR, "")), is_wrong_path(OSError(errno.ENOSPC, ""))
    (True, False)
    """
    return error.errno in _CAUSES
