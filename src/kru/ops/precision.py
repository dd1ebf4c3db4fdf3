"""Which precision is computed in, when weights are stored in another or autocast is on."""

from contextlib import nullcontext

import torch


def computing_dtype(stored: torch.dtype) -> torch.dtype:
    """float32 for weights in half precision, whose errors would add up over factors and time steps."""
    return torch.float32 if stored in (torch.float16, torch.bfloat16) else stored


def autocasting(device_type: str) -> bool:
    """Whether autocast is on for a device. The meta device has no autocast, and torch raises an error when asked."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> "torch.autocast | nullcontext[None]":
    """Keeps the precision of the weights where autocast would lower it."""
    if autocasting(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
