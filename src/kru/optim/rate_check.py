"""A warning when a scheduler overwrites the learning rates that the groups of an optimiser were given."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch


class RateCheck:
    """A hook before each step of an optimiser: warns, once, when a group has lost its own learning rate.

    `OneCycleLR(optimizer, max_lr=0.01)` and `CyclicLR` set the same learning rate in all groups.
    Schedulers that multiply the rates keep their ratio until all rates have come down to a common minimum (`eta_min`,
    `min_lr`). So a group has lost its rate if it differed from the first group's at the start, is equal to it now,
    and both are above the lower one of the two at the start.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.handle = optimizer.register_step_pre_hook(self)

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        lost = _lost(self.rates, optimizer.param_groups)
        if lost is not None:
            self.handle.remove()
            own, common = self.rates[lost], optimizer.param_groups[lost]["lr"]
            warnings.warn(
                f'the group "{optimizer.param_groups[lost]["name"]}" was built with the learning rate {own:g}, now '
                f"all groups have {common:g}: a scheduler has set one for all of them. Give it one for each, "
                'such as OneCycleLR(optimizer, max_lr=[group["lr"] for group in optimizer.param_groups], ...)',
                UserWarning,
                stacklevel=4,
            )


def _lost(rates: Sequence[float], groups: Sequence[dict[str, Any]]) -> int | None:
    """The place of the first group whose rate is no longer its own."""
    common = groups[0]["lr"]
    for place, (own, group) in enumerate(zip(rates, groups, strict=False)):
        if own != rates[0] and group["lr"] == common > min(own, rates[0]):
            return place
    return None
