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
    return (times < lengths.to(part.device)).to(part.dtype).unsqueeze(-1)
