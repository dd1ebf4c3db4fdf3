"""Large buffers that are kept for the next call.

A training step with long sequences needs fresh buffers of up to hundreds of megabytes for its states. The system clears
every page of them, which takes as long as a good part of the arithmetic, and frees them again after the step. Here the
memory of the last such buffers is kept, and lent out again as soon as nobody holds a tensor on it. `clear` gives it
back.

The memory is private to a process: after a fork, neither parent nor child sees what the other writes.
"""

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

LARGE = 4 << 20
"""Buffers from this many bytes on are kept; smaller ones are cheap to get from torch."""
KEPT = 512 << 20
"""Bytes that are kept at most while nobody uses them, or one buffer if that is larger."""

_free: list[mmap.mmap] = []
_lock = threading.RLock()  # a finalizer may run while this thread holds the lock


def large(shape: Sequence[int], dtype: torch.dtype) -> Tensor | None:
    """An uninitialised tensor on the CPU, or None if it is too small to be worth keeping or too large to be had."""
    size = prod(shape) * dtype.itemsize
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        block = _take(size)
    except (OSError, OverflowError):
        return None  # torch says better than we could that there is no such memory
    # torch holds this object as long as anything shares the tensor's memory.
    owner: Any = (ctypes.c_char * size).from_buffer(block)
    weakref.finalize(owner, _give_back, block).atexit = False
    return torch.frombuffer(owner, dtype=dtype, count=prod(shape)).view(tuple(shape))


def clear() -> None:
    """Give the memory that is kept, and not lent out, back to the system."""
    with _lock:
        _free.clear()


def _take(size: int) -> mmap.mmap:
    with _lock:
        for block in _free:
            if size <= len(block) <= size + size // 4:
                _free.remove(block)
                return block
        _drop(KEPT - size)
    # Private: the default, MAP_SHARED, would have a forked child write into the tensors of its parent.
    block = mmap.mmap(
        -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE
    )
    block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _give_back(block: mmap.mmap) -> None:
    with _lock:
        _drop(KEPT - len(block))
        _free.append(block)


def _drop(limit: int) -> None:
    """Give back what was used longest ago, until no more than `limit` bytes are kept."""
    kept = sum(map(len, _free))
    while _free and kept > limit:
        kept -= len(_free.pop(0))


def _start_child() -> None:
    """Start a forked child with nothing kept and a lock that nobody holds.

    A thread that held the lock does not exist in the child. Writing to kept memory would copy every page that the
    parent still has; fresh pages are cheaper.
    """
    global _free, _lock
    _free, _lock = [], threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_child)
