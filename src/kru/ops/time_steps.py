"""Steps of the time loops that are written in PyTorch."""

import torch
from torch import Tensor


def time_order(steps: int, reverse: bool) -> range:
    """The steps from the first to the last, or back."""
    return range(steps - 1, -1, -1) if reverse else range(steps)


def active_steps(lengths: Tensor | None, part: Tensor) -> Tensor | None:
    """(T, B, 1): 1 within a sequence, 0 beyond its end; None where all sequences have T steps."""
    if lengths is None:
        return None
    times = torch.arange(len(part), device=part.device).unsqueeze(1)
    return (times < lengths.to(part.device, non_blocking=part.is_cuda)).to(part.dtype).unsqueeze(-1)


def restarts(reset: Tensor | None, lengths: Tensor | None, *, reverse: bool) -> Tensor | None:
    """(T, B, 1): True where a reset (T, B) makes a step start anew; None without resets.

    `reset` marks the first step of a sequence in time. In reverse, the step that starts anew is the one before it.
    """
    if reset is None:
        return None
    if lengths is not None:  # beyond the end the state stays what it is
        times = torch.arange(len(reset), device=reset.device).unsqueeze(1)
        reset = reset & (times < lengths.to(reset.device, non_blocking=reset.is_cuda))
    if reverse:
        reset = torch.cat([reset[1:], torch.zeros_like(reset[:1])])
    return reset.unsqueeze(-1)
