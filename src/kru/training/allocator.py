"""Memory that a training step has freed stays in the process, for the next step."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed, for the rest of the process; whether it does (glibc does).

    By default it gives large blocks back to the system as soon as they are free. Each step takes blocks of the
    same sizes again, and the system clears every page of them again: for the gradient of all outputs, and what a
    loss makes of them, that takes as long as the recurrence itself.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    # Nothing is trimmed from the heap, and blocks of any size come from it.
    return all([mallopt(M_TRIM_THRESHOLD, -1), mallopt(M_MMAP_MAX, 0)])
