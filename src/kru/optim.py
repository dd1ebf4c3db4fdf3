"""Optimisers with a learning rate of their own for the recurrent matrices."""

from typing import Any

import torch
from torch import nn

from kru.parameters import recurrent_parameters

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
}


def optimizer(
    model: nn.Module,
    name: str = "rmsprop",
    lr: float = 1e-3,
    recurrent_lr: float | None = None,
    **options: Any,
) -> torch.optim.Optimizer:
    """A `torch.optim` optimiser with two parameter groups, "recurrent" for the factors and "other" for the
    rest.

    One entry of a factor is in N^2 / n_f^2 times as many places of W as an entry of a dense matrix, so
    factors get a smaller rate.

    Args:
        model: any module; its frozen parameters are left out.
        name: "rmsprop" or "adam".
        lr: the learning rate.
        recurrent_lr: that of the recurrent matrices; None for a tenth of `lr`.
        options: further arguments of the torch optimiser. A weight decay isn't applied to the recurrent
            matrices: it would pull them away from the unitary set.

    >>> import kru
    >>> optimizer = kru.optimizer(kru.KRU(10, 128), "adam", lr=1e-3, betas=(0.9, 0.99))
    >>> [(group["name"], group["lr"]) for group in optimizer.param_groups]
    [('other', 0.001), ('recurrent', 0.0001)]
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"name: expected one of {', '.join(OPTIMIZERS)}, got {name!r}")
    if recurrent_lr is None:
        recurrent_lr = lr / 10
    for argument, value in (("lr", lr), ("recurrent_lr", recurrent_lr)):
        if not value >= 0:
            raise ValueError(f"{argument}: expected a rate of at least 0, got {value!r}")
    kind: Any = OPTIMIZERS[name]
    optimizer: torch.optim.Optimizer = kind(parameter_groups(model, recurrent_lr), lr=lr, **options)
    return optimizer


def parameter_groups(model: nn.Module, recurrent_lr: float) -> list[dict[str, Any]]:
    """The groups of `optimizer`, empty ones left out: what an optimiser with special steps would read."""
    trained = [p for p in model.parameters() if p.requires_grad]
    recurrent = {id(p) for p in recurrent_parameters(model)}
    groups: list[dict[str, Any]] = [
        {"name": "other", "params": [p for p in trained if id(p) not in recurrent]},
        {
            "name": "recurrent",
            "params": [p for p in trained if id(p) in recurrent],
            "lr": recurrent_lr,
            "weight_decay": 0.0,
        },
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError(
            f"model: expected one with parameters to train, got {type(model).__name__} without any"
        )
    return groups
