"""Whether the Triton kernels run on a tensor's device, and how they are started.

Triton is imported on the first use of a GPU. PyTorch's CUDA and ROCm builds bring it along. Where it is missing, too
old, or cannot compile (it needs a C compiler at run time), one warning says so and PyTorch operations take over.
"""

import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module, metadata
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

SWITCH = os.environ.get("KRU_TRITON", "1")
"""KRU_TRITON: 0 leaves the kernels out; cpu runs them on CPU tensors in Triton's interpreter, for tests."""
ON_CPU = SWITCH == "cpu"
"""Whether tensors on the CPU take the way of those on a GPU."""
OLDEST = (3, 7, 1)
"""Earlier versions of Triton miscompile on Hopper."""
DTYPES = (torch.float32, torch.complex64)
"""What the kernels compute in."""


def runs(tensor: Tensor) -> bool:
    """Whether an operation on tensors of this device and dtype runs on the Triton kernels."""
    if tensor.dtype not in DTYPES:
        return False
    if ON_CPU:
        return tensor.is_cpu
    return tensor.is_cuda and works(tensor.device.index or 0)


def check(tensor: Tensor) -> None:
    """Raise an error unless the kernels run on tensors like this: for the operators, which have no other way."""
    if tensor.dtype not in DTYPES:
        raise TypeError(f"expected {' or '.join(map(str, DTYPES))} on {tensor.device}, got {tensor.dtype}")
    if not runs(tensor):
        reason = _failure(tensor.device.index or 0)
        raise RuntimeError(f"kru's GPU kernels cannot be used on {tensor.device}: {reason}")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def works(index: int) -> bool:
    """Whether the kernels work on the GPU of this number; tried once."""
    return _failure(index) is None


@cache
def _failure(index: int) -> str | None:
    """Why the kernels do not work, or None. The first kernel that is compiled tells whether the others can be."""
    if SWITCH == "0":
        return "KRU_TRITON=0 switches them off"
    reason = missing()
    if reason is None:
        try:
            with _disable_current_modes(), torch.no_grad():
                _try(torch.device("cuda", index))
            return None
        except Exception as error:  # a compiler's, a driver's or Triton's own: there is no common class
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    warnings.warn(
        f"kru's GPU kernels cannot be used ({reason}); the slower PyTorch operations are used", stacklevel=2
    )
    return reason


def _try(device: torch.device) -> None:
    kernels: Any = import_module("kru.ops.kron.triton")
    x = torch.arange(4.0, device=device).view(1, 4)
    w = torch.tensor([[0.0, 1.0], [2.0, 0.0]], device=device)
    got = kernels.forward(x, [w, w]).tolist()
    if got != [[3.0, 4.0, 2.0, 0.0]]:
        raise RuntimeError(f"a first product gave {got}, expected [[3.0, 4.0, 2.0, 0.0]]")


def missing() -> str | None:
    """Why Triton cannot be used, as far as one can tell without a GPU; None if nothing is known."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        try:
            version = metadata.version("pytorch-triton-rocm")
        except metadata.PackageNotFoundError:
            return "Triton is not installed"
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        return f"Triton {'.'.join(map(str, OLDEST))} or later is needed, {version} is installed"
    return None


def status() -> str:
    """One line on the GPU kernels of this installation. Nothing is compiled for it."""
    if SWITCH == "0":
        return "none: KRU_TRITON=0 switches them off"
    reason = missing()
    if reason is not None:
        return f"none: {reason}"
    version = f"Triton {_version()}"
    if ON_CPU:
        return f"{version}, in its interpreter on the CPU"
    if not torch.cuda.is_available():
        return f"{version}, no GPU here"
    names = sorted({torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())})
    return f"{version} on {', '.join(names)}"


def _version() -> str:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return metadata.version("pytorch-triton-rocm")


def on_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """Kernels are started on the current device: make it the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def processors(tensor: Tensor) -> int:
    """How many blocks run at the same time at least. In the interpreter, few enough for loops to be tested."""
    if not tensor.is_cuda:
        return 2
    return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)
