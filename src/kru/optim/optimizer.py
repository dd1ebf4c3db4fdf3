"""Optimisers with a learning rate of their own for the recurrent matrices, and the Cayley update of unitary ones."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kru.matrices import FullUnitaryMatrix
from kru.ops.precision import computing_dtype
from kru.optim.parameters import input_weights, recurrent_parameters

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
}


def optimizer(
    model: nn.Module,
    name: str = "rmsprop",
    lr: float = 1e-3,
    recurrent_lr: float | None = None,
    input_lr: float | None = None,
    **options: Any,
) -> torch.optim.Optimizer:
    """A `torch.optim` optimiser with parameter groups, "recurrent" for the factors and "other" for the rest.

    One entry of a factor is in N^2 / n_f^2 times as many places of W as an entry of a dense matrix, so
    factors get a smaller rate. The matrices of `kru.baselines.FCURNN` are a third group, "unitary", with the rate
    of the recurrent one: they move along the unitary matrices, see `CayleyUpdate`.

    Args:
        model: any module; its frozen parameters are left out.
        name: "rmsprop" or "adam".
        lr: the learning rate.
        recurrent_lr: that of the recurrent matrices; None for a tenth of `lr`.
        input_lr: that of the input weights of recurrent layers, which are then a group "input"; None for `lr`.
            With few inputs, as pixels one at a time, these weights are few and a higher rate helps.
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
    for argument, value in (("lr", lr), ("recurrent_lr", recurrent_lr), ("input_lr", input_lr)):
        if value is not None and not value >= 0:
            raise ValueError(f"{argument}: expected a rate of at least 0, got {value!r}")
    groups = parameter_groups(model, recurrent_lr, input_lr)
    kind: Any = OPTIMIZERS[name]
    if any(group["name"] == UNITARY for group in groups):
        kind = _CAYLEY[name]
    optimizer: torch.optim.Optimizer = kind(groups, lr=lr, **options)
    return optimizer


UNITARY = "unitary"
"""The name of the group whose parameters (2, N, N) are unitary matrices and stay so."""


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


class CayleyUpdate(torch.optim.Optimizer):
    """Turns the steps of another optimiser on the group "unitary" into steps along the unitary matrices.

    Where that optimiser would change W by -lr G, with G the gradient as it scales it, W is multiplied by a
    unitary matrix instead::

        A = G W^H - W G^H                                        skew-Hermitian
        W <- (I + lr/2 A)^-1 (I - lr/2 A) W

    the multiplicative update of Wisdom et al., 2016, arXiv:1611.00035, eq. 8 and 9; with RMSprop that of
    their programs in which the gradient is first divided by its running root mean square. Rounding errors
    don't add up: after each update W is brought back by one step of Newton's iteration for the unitary
    polar factor, W <- W (3 I - W^H W) / 2.

    Momenta and mean squares are the state of the optimiser it is mixed into, which `state_dict` has as usual.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moved = [
            parameter
            for group in self.param_groups
            if group["name"] == UNITARY
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        before = [parameter.clone() for parameter in moved]
        # From zero, where the other optimiser's step is the change itself and not rounded to W's digits.
        for parameter in moved:
            parameter.zero_()
        super().step()
        for parameter, matrix in zip(moved, before, strict=True):
            parameter.copy_(cayley_update(matrix, parameter))
        return loss


def cayley_update(matrix: Tensor, change: Tensor) -> Tensor:
    """W (2, N, N) multiplied by (I - S/2)^-1 (I + S/2) with S = C W^H - W C^H, C the change that was asked for.

    >>> w = torch.stack([torch.eye(2), torch.zeros(2, 2)])
    >>> turned = torch.complex(*cayley_update(w, torch.tensor([[[0.0, 0.1], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])))
    >>> torch.allclose(turned.mH @ turned, torch.eye(2, dtype=turned.dtype), atol=1e-6)
    True
    """
    dtype = computing_dtype(matrix.dtype)
    w, c = torch.complex(*matrix.to(dtype)), torch.complex(*change.to(dtype))
    product = c @ w.mH
    half = (product - product.mH) / 2
    eye = torch.eye(w.shape[0], dtype=w.dtype, device=w.device)
    w = torch.linalg.solve(eye - half, w + half @ w)
    w = w @ (1.5 * eye - 0.5 * (w.mH @ w))
    return torch.stack([w.real, w.imag])


class CayleyRMSprop(CayleyUpdate, torch.optim.RMSprop):
    """RMSprop, with the Cayley update of the group "unitary"."""


class CayleyAdam(CayleyUpdate, torch.optim.Adam):
    """Adam, with the Cayley update of the group "unitary"."""


_CAYLEY: dict[str, type[CayleyUpdate]] = {"rmsprop": CayleyRMSprop, "adam": CayleyAdam}
