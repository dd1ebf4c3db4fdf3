"""Optimisers with a learning rate of their own for the recurrent matrices."""

from typing import Any

import torch
from torch import nn

from kru.matrices import FullUnitaryMatrix
from kru.optim.cayley import UNITARY, with_cayley_update
from kru.optim.parameters import input_weights, recurrent_parameters
from kru.optim.rate_check import RateCheck

WITHOUT_GROUPS = (torch.optim.LBFGS,)
"""Optimisers that have one learning rate for all parameters."""
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and kind not in (torch.optim.Optimizer, *WITHOUT_GROUPS)
}
"""Those of `torch.optim`, by their names in lower case."""


def optimizer(
    model: nn.Module,
    name: str | type[torch.optim.Optimizer] = "rmsprop",
    lr: float = 1e-3,
    recurrent_lr: float | None = None,
    input_lr: float | None = None,
    **options: Any,
) -> torch.optim.Optimizer:
    """A `torch.optim` optimiser with parameter groups, "recurrent" for the factors and "other" for the rest.

    Each entry of a factor occurs N^2 / n_f^2 times in W, so factors get a smaller learning rate. The matrices of
    `kru.baselines.FCURNN` are a third group, "unitary", with the learning rate of "recurrent": they move along the
    unitary matrices, see `kru.optim.cayley.CayleyUpdate`.

    Args:
        model: any module; its frozen parameters are left out.
        name: the name of an optimiser of `torch.optim`, such as "rmsprop", "adam", "adamw" or "sgd", or a class, such
            as `torch.optim.AdamW` or one of your own that takes parameter groups.
        lr: the learning rate.
        recurrent_lr: the learning rate of the recurrent matrices; None for a tenth of `lr`.
        input_lr: the learning rate of the input weights of recurrent layers, which then form a group "input"; None for
            `lr`. With few inputs, such as one pixel at a time, a higher learning rate helps.
        options: further arguments of the torch optimiser. Weight decay is not applied to the recurrent
            matrices, because it would pull them away from the unitary matrices.

    >>> import kru
    >>> optimizer = kru.optimizer(kru.KRU(10, 128), "adam", lr=1e-3, betas=(0.9, 0.99))
    >>> [(group["name"], group["lr"]) for group in optimizer.param_groups]
    [('other', 0.001), ('recurrent', 0.0001)]

    Schedulers that multiply learning rates (`LambdaLR`, `CosineAnnealingLR`, `ReduceLROnPlateau` and most others) keep
    the groups' ratio. `OneCycleLR` and `CyclicLR` overwrite the learning rates: pass one per group. The optimiser
    warns when a group loses its own learning rate.

    >>> rates = [group["lr"] for group in optimizer.param_groups]
    >>> scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rates, total_steps=100)
    """
    kind: Any = optimizer_class(name)
    if recurrent_lr is None:
        recurrent_lr = lr / 10
    for argument, value in (("lr", lr), ("recurrent_lr", recurrent_lr), ("input_lr", input_lr)):
        if value is not None and not value >= 0:
            raise ValueError(f"{argument}: expected a rate of at least 0, got {value!r}")
    groups = parameter_groups(model, recurrent_lr, input_lr)
    if any(group["name"] == UNITARY for group in groups):
        kind = with_cayley_update(kind)
    optimizer: torch.optim.Optimizer = kind(groups, lr=lr, **options)
    RateCheck(optimizer)
    return optimizer


def optimizer_class(name: str | type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The class that a name of `torch.optim` or a class stands for.

    >>> optimizer_class("adamw")
    <class 'torch.optim.adamw.AdamW'>
    """
    kind = OPTIMIZERS.get(name.lower()) if isinstance(name, str) else name
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
        if issubclass(kind, WITHOUT_GROUPS):
            raise ValueError(f"name: expected an optimiser that takes parameter groups, got {kind.__name__}")
        return kind
    raise ValueError(
        f"name: expected a class of optimisers or one of {', '.join(sorted(OPTIMIZERS))}, got {name!r}"
    )


def parameter_groups(
    model: nn.Module, recurrent_lr: float, input_lr: float | None = None
) -> list[dict[str, Any]]:
    """The groups of `optimizer`, empty ones left out."""
    trained = [p for p in model.parameters() if p.requires_grad]
    unitary = {id(m.unitary) for m in model.modules() if isinstance(m, FullUnitaryMatrix)}
    recurrent = {id(p) for p in recurrent_parameters(model)} - unitary
    inputs = {id(p) for p in input_weights(model)} if input_lr is not None else set()
    own: dict[str, Any] = {"lr": recurrent_lr, "weight_decay": 0.0}
    groups: list[dict[str, Any]] = [
        {"name": "other", "params": [p for p in trained if id(p) not in recurrent | unitary | inputs]},
        {"name": "recurrent", "params": [p for p in trained if id(p) in recurrent], **own},
        {"name": UNITARY, "params": [p for p in trained if id(p) in unitary], **own},
        {"name": "input", "params": [p for p in trained if id(p) in inputs], "lr": input_lr},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError(
            f"model: expected one with parameters to train, got {type(model).__name__} without any"
        )
    return groups
