"""Whether training can resume from a checkpoint: everything that it needs is there, and of the right kind."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from kru.nn.states import State
from kru.training.checkpoint import Checkpoint, Progress

MOMENTS = {"rmsprop": ("step", "square_avg"), "adam": ("step", "exp_avg", "exp_avg_sq")}
"""What each optimiser keeps of a parameter: the steps, a number, and tensors of the parameter's shape."""


def expect_resumable_progress(progress: Progress, batches: int) -> None:
    """Raise unless the counts can be those of a run whose pass has so many batches."""
    for name in ("step", "epoch", "index", "best_step", "stale", "since_decay", "growth_stale", "loss_count"):
        if not 0 <= getattr(progress, name) < 2**53:
            raise ValueError(f"{name}: expected a count, got {getattr(progress, name)}")
    if progress.index >= batches:
        raise ValueError(f"index: expected one of {batches} batches, got {progress.index}")
    for name in ("seconds", "rate", "loss_sum"):
        if not math.isfinite(getattr(progress, name)):
            raise ValueError(f"{name}: expected a finite number, got {getattr(progress, name)}")


def expect_moments(checkpoint: Checkpoint, name: str, parameters: Sequence[nn.Parameter]) -> None:
    """Raise unless the checkpoint has the state of the optimiser of this name with these parameters.

    A parameter that has no gradient, or is new since the last step of growth, has no
    moments; but after a step some have.
    """
    states = checkpoint.optimizer
    if checkpoint.progress.step and not states:
        raise ValueError(
            f"optimizer: expected the state of {name} after {checkpoint.progress.step} steps, got none"
        )
    for index, state in states.items():
        if index >= len(parameters):
            raise ValueError(f"optimizer/{index}: expected one of {len(parameters)} parameters")
        if set(state) != set(MOMENTS[name]):
            raise ValueError(
                f"optimizer/{index}: expected {', '.join(MOMENTS[name])}, got {', '.join(sorted(state)) or 'nothing'}"
            )
        for key, tensor in state.items():
            shape = () if key == "step" else parameters[index].shape
            _expect_real(f"optimizer/{index}/{key}", tensor, tuple(shape))


def expect_generator(state: Tensor) -> None:
    """Raise unless this is a state of torch's generator."""
    try:
        torch.Generator().set_state(state)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"generator: expected a state of torch's generator ({error})") from error


def expect_carried(carried: State | None, wanted: State) -> None:
    """Raise unless the carried state has the form of `wanted`, a state of the same model for the same batch."""
    parts, wanted_parts = _parts(carried), _parts(wanted)
    if len(parts) != len(wanted_parts):
        raise ValueError(f"carried: expected the state of {len(wanted_parts)} tensors, got {len(parts)}")
    for name, tensor in wanted_parts.items():
        if name not in parts:
            raise ValueError(f"carried/{name}: expected a tensor of that name, got none")
        if parts[name].dtype != tensor.dtype:
            raise ValueError(f"carried/{name}: expected {tensor.dtype}, got {parts[name].dtype}")
        _expect_real(f"carried/{name}", parts[name], tuple(tensor.shape))


def _parts(state: State | None) -> Mapping[str, Tensor]:
    if state is None:
        return {}
    if isinstance(state, tuple):
        return {str(i): part for i, part in enumerate(state)}
    return {"h": state}


def _expect_real(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        raise ValueError(f"{name}: expected finite real numbers, got others")
