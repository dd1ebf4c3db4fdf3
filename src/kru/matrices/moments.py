"""What an optimiser knows of parameters, carried over to those that take their place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

AVERAGES = ("exp_avg", "grad_avg")
"""The names that `torch.optim` gives to running averages of gradients."""
SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")
"""Those of averages of squared gradients."""

Carry = Callable[[Sequence[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Replacement:
    """Parameters that take the place of others.

    Attributes:
        old, new: the parameters.
        averages: averages of the gradients of `new`, from those of `old`.
        squares: averages of their squares. Without these two functions the new parameters start anew.
    """

    old: tuple[nn.Parameter, ...]
    new: tuple[nn.Parameter, ...]
    averages: Carry | None = None
    squares: Carry | None = None


def carry_over(optimizer: torch.optim.Optimizer, replacement: Replacement) -> None:
    """Give the new parameters the place of the old ones in an optimiser, and moments derived from theirs.

    The new parameters stand where the first of the old ones stood, in its group. They have its number of
    steps; what is neither an average of gradients nor one of squares, such as a momentum buffer, starts at
    zero. Parameters that the optimiser doesn't train are left out, and so are their successors.
    """
    old = {id(parameter) for parameter in replacement.old}
    is_placed = False
    for group in optimizer.param_groups:
        positions = [at for at, parameter in enumerate(group["params"]) if id(parameter) in old]
        if not positions:
            continue
        for key in ("params", "param_names"):
            if key not in group:
                continue
            successors = (
                replacement.new if key == "params" else [group[key][positions[0]]] * len(replacement.new)
            )
            kept = [entry for at, entry in enumerate(group[key]) if at not in positions]
            kept[positions[0] : positions[0]] = [] if is_placed else successors
            group[key] = kept
        is_placed = True
    states = [optimizer.state.pop(parameter, {}) for parameter in replacement.old]
    if is_placed and all(states) and replacement.averages is not None and replacement.squares is not None:
        for name, value in states[0].items():
            known = [state[name] for state in states]
            carry = (
                replacement.averages if name in AVERAGES else replacement.squares if name in SQUARES else None
            )
            if carry is not None:
                values = carry(known)
            elif isinstance(value, Tensor) and value.shape == replacement.old[0].shape:
                values = [torch.zeros_like(parameter) for parameter in replacement.new]
            else:
                values = [value.clone() if isinstance(value, Tensor) else value for _ in replacement.new]
            for parameter, carried in zip(replacement.new, values, strict=True):
                optimizer.state[parameter][name] = carried
