"""The native library, called through ctypes. The structures mirror `csrc/kru.h`."""

import ctypes
import os
import struct
import sys
import warnings
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_void_p
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kru.ops import buffers

INTERFACE = 6
"""KRU_INTERFACE of the header that the structures below mirror."""


class KronCall(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("dtype", "is_complex", "threads", "factor_count")),
        *((name, c_int64) for name in ("rows", "rank")),
        *((name, c_void_p) for name in ("p", "q", "factors", "x", "y", "dy", "dx", "dfactors", "packed")),
    )


class ScanCall(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("dtype", "is_complex", "threads", "factor_count")),
        *((name, c_int32) for name in ("cell", "nonlinearity", "input_kind", "reverse")),
        *((name, c_int64) for name in ("steps", "batch", "inputs", "rank")),
        *((name, c_void_p) for name in ("p", "q", "factors")),
        *((name, c_void_p) for name in ("part", "x", "symbols", "weight", "bias", "recurrent_bias")),
        *((name, c_void_p) for name in ("h0", "c0", "lengths")),
        *((name, c_void_p) for name in ("states", "cells", "gates", "h", "c")),
        *((name, c_void_p) for name in ("dstates", "dh", "dc")),
        *((name, c_void_p) for name in ("dfactors", "dpart", "dx", "dweight", "dbias", "drecurrent_bias")),
        *((name, c_void_p) for name in ("dh0", "dc0", "leak", "dleak", "reset", "initial", "dinitial")),
        ("every", c_int64),
        *((name, c_void_p) for name in ("kept_h", "kept_c")),
    )


class ChainStage(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("kind", "inverse")),
        *((name, c_int64) for name in ("first", "distance", "pairs")),
        *((name, c_void_p) for name in ("order", "numbers", "c", "s", "dnumbers", "dc", "ds")),
    )


class ChainCall(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("dtype", "threads", "stage_count", "reverse", "input_kind", "unused")),
        *((name, c_int64) for name in ("steps", "batch", "size", "inputs")),
        *((name, c_void_p) for name in ("stages", "part", "x", "symbols", "weight", "bias", "h0", "lengths")),
        *((name, c_void_p) for name in ("states", "h")),
        *((name, c_void_p) for name in ("dstates", "dh", "dpart", "dx", "dweight", "dbias", "dh0")),
    )


PART, DENSE, SYMBOLS = 0, 1, 2
REAL_DTYPES = {torch.float32: 0, torch.float64: 1}
DTYPES = {torch.float32: (0, 0), torch.float64: (1, 0), torch.complex64: (0, 1), torch.complex128: (1, 1)}
"""dtype -> (precision, is_complex)"""
PLAIN = {Tensor, torch.nn.Parameter}
"""Types without behaviour of their own."""


missing: str | None = None
"""Why there is no library, if there is none."""


def _load() -> ctypes.CDLL | None:
    global missing
    if os.environ.get("KRU_NATIVE", "1") == "0":
        missing = "KRU_NATIVE=0 switches it off"
        return None
    name = {"darwin": "libkru.dylib", "win32": "kru.dll"}.get(sys.platform, "libkru.so")
    candidates = [Path(folder) / name for folder in sys.modules["kru"].__path__]
    reason = "it was not built"
    for path in candidates:
        if not path.exists():
            continue
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            reason = str(error)
            continue
        if not hasattr(library, "kru_interface") or library.kru_interface() != INTERFACE:
            reason = "it was built from another version of the source; install kru again, or run make setup"
            continue
        for function, call in (("kron", KronCall), ("scan", ScanCall), ("chain", ChainCall)):
            for direction in ("forward", "backward"):
                entry = getattr(library, f"kru_{function}_{direction}")
                entry.argtypes, entry.restype = [POINTER(call)], ctypes.c_int
        library.kru_simd.restype = c_char_p
        library.kru_fma_rate.argtypes, library.kru_fma_rate.restype = [c_int32, c_double], c_double
        return library
    missing = reason
    warnings.warn(
        f"kru's native library could not be loaded ({reason}); the slower PyTorch reference is used",
        stacklevel=2,
    )
    return None


library = _load()
"""The loaded library, or None: then everything runs on the reference."""


pack_kron_call = struct.Struct("4i2q9P").pack
"""A KronCall as bytes, in the order of its fields: for small products, filling the structure is too slow."""
kron_forward_packed: Any = None
if library is not None:
    kron_forward_packed = library[
        "kru_kron_forward"
    ]  # a function object of its own, with other argument types
    kron_forward_packed.argtypes, kron_forward_packed.restype = [c_char_p], ctypes.c_int


def simd() -> str:
    """The instruction set of the native kernels ("avx512", "avx2", "neon", "baseline"), or "none" without them."""
    return library.kru_simd().decode() if library is not None else "none"


def transforming() -> bool:
    """Whether a function transform (vmap, grad, jvp, ...) or forward-mode differentiation is under way.

    Only PyTorch's own operations know those: the kernels would see neither the batch nor the tangent.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def check_same(name: str, tensor: Tensor | None, shape: Sequence[int], like: Tensor) -> None:
    """Raise an error unless the tensor has this shape and the dtype and device of `like`."""
    if tensor is None:
        raise TypeError(f"{name}: expected a tensor, got None")
    got, expected = (tensor.shape, tensor.dtype, tensor.device), (torch.Size(shape), like.dtype, like.device)
    if got != expected:
        raise ValueError(
            f"{name}: expected shape, dtype and device {_described(expected)}, got {_described(got)}"
        )


def _described(kind: tuple[torch.Size, torch.dtype, torch.device]) -> str:
    shape, dtype, device = kind
    return f"{tuple(shape)}, {dtype}, {device}"


def precision(factor: Tensor) -> int:
    if factor.dtype not in REAL_DTYPES:
        raise TypeError(f"factors: expected torch.float32 or torch.float64, got {factor.dtype}")
    return REAL_DTYPES[factor.dtype]


def check_status(status: int) -> None:
    if status != 0:
        raise MemoryError("kru: not enough memory for the native kernel's workspace")


def dense(tensor: Tensor) -> Tensor:
    """The tensor as pointers see it: contiguous, no lazy conjugation or negation."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def in_memory(tensor: Tensor) -> bool:
    """Whether all values of a tensor on the CPU are where its pointer, sizes and strides say.

    They are not in a tensor of another layout, a wrapper around other tensors, a zero tensor, or where the storage
    was resized since.
    """
    if tensor.layout is not torch.strided or tensor._is_zerotensor():
        return False
    try:
        return not tensor.numel() or (tensor.data_ptr() != 0 and not _cut_off(tensor))
    except RuntimeError:  # no storage at all
        return False


def _cut_off(tensor: Tensor) -> bool:
    """Whether the storage ends before the tensor's last value."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * step for size, step in steps)
    return (last + 1) * tensor.itemsize > tensor.untyped_storage().nbytes()


def contiguous_address(tensor: Tensor) -> int:
    """Where the values of a contiguous tensor on the CPU begin; 0 if it has none or they are not all in memory."""
    try:
        size = tensor.untyped_storage().nbytes()
        return tensor.data_ptr() if tensor.nbytes + tensor.storage_offset() * tensor.itemsize <= size else 0
    except RuntimeError:  # no storage at all
        return 0


def check_memory(name: str, argument: object) -> None:
    """Raise an error if a tensor on the CPU, or one of a list of them, cannot be read through its pointer."""
    if isinstance(argument, (list, tuple)):
        for place, item in enumerate(argument):
            check_memory(f"{name}[{place}]", item)
    elif isinstance(argument, Tensor) and argument.is_cpu and not in_memory(argument):
        raise ValueError(
            f"{name}: expected a dense tensor with its values in memory, got {_memory_of(argument)}"
        )


def check_storage(name: str, argument: object) -> None:
    """Raise an error if the storage of an ordinary tensor, or of one of a list of them, was freed or made smaller.

    For tensors that torch's own operations are to read: some of these crash.
    """
    if isinstance(argument, (list, tuple)):
        for place, item in enumerate(argument):
            check_storage(f"{name}[{place}]", item)
    elif type(argument) in PLAIN and isinstance(argument, Tensor) and argument.layout is torch.strided:
        try:
            cut_off = argument.is_cpu and argument.numel() > 0 and _cut_off(argument)
        except RuntimeError:  # a tensor of a function transform has no storage
            return
        if cut_off:
            raise ValueError(
                f"{name}: expected a tensor with its values in memory, got {_memory_of(argument)}"
            )


def _memory_of(tensor: Tensor) -> str:
    if tensor.layout is not torch.strided:
        return f"layout {tensor.layout}"
    try:
        return f"shape {tuple(tensor.shape)} on a storage of {tensor.untyped_storage().nbytes()} bytes"
    except RuntimeError:
        return "one without storage"


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """A new tensor of like's dtype on the CPU, regardless of the default device."""
    kept = buffers.large(shape, like.dtype)
    return torch.empty(shape, dtype=like.dtype, device="cpu") if kept is None else kept


class Shapes:
    """The sizes of a list of factors, as the kernels take them."""

    def __init__(self, sizes: tuple[Sequence[int], ...]) -> None:
        self.count = len(sizes)
        self.rows = prod(p for p, _ in sizes)
        self.columns = prod(q for _, q in sizes)
        array: Any = c_int64 * self.count
        self._p, self._q = array(*(p for p, _ in sizes)), array(*(q for _, q in sizes))
        self.p, self.q = ctypes.addressof(self._p), ctypes.addressof(self._q)
        self.pointers: Any = c_void_p * self.count
        self.matrices = all(p > 0 and q > 0 for p, q in sizes)


@lru_cache(maxsize=256)
def shapes_of(*sizes: Sequence[int]) -> Shapes:
    return Shapes(sizes)


@lru_cache(maxsize=256)
def equal_shapes(size: Sequence[int], count: int) -> Shapes:
    return Shapes((size,) * count)
