"""The Cayley update, by which an optimiser keeps unitary matrices unitary."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kru.ops.precision import computing_dtype
from kru.ops.sharded import assign, whole

UNITARY = "unitary"
"""The name of the group whose parameters (2, N, N) are unitary matrices and stay so."""


class CayleyUpdate(torch.optim.Optimizer):
    """Turns the steps of another optimiser on the group "unitary" into steps along the unitary matrices.

    Where that optimiser would change W by -lr G, with G the gradient as it scales it, W is multiplied by a
    unitary matrix instead::

        A = G W^H - W G^H                                        skew-Hermitian
        W <- (I + lr/2 A)^-1 (I - lr/2 A) W

    the multiplicative update of Wisdom et al., 2016, arXiv:1611.00035, eq. 8 and 9. With RMSprop, the gradient is
    first divided by its running root mean square, as in their programs. Rounding errors do not accumulate:
    after each update W is brought back by one step of Newton's iteration for the unitary polar factor,
    W <- W (3 I - W^H W) / 2.

    Moments and mean squares are part of the state of the underlying optimiser, and of its `state_dict`. That optimiser
    sees zeros instead of W, which matters only to optimisers whose steps depend on the parameter, such as Adafactor.
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
            if group.get("name") == UNITARY
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        # A parameter that is sharded over processes is moved as a whole in each of them.
        before = [whole(parameter).clone() for parameter in moved]
        # From zero, where the other optimiser's step is the change itself and not rounded to W's digits.
        for parameter in moved:
            parameter.zero_()
        super().step()
        for parameter, matrix in zip(moved, before, strict=True):
            assign(parameter, cayley_update(matrix, whole(parameter)))
        return loss

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so pickle cannot find it by its name.
        return _restored, (type(self).__bases__[1],), self.__getstate__()


_made: dict[type[torch.optim.Optimizer], type[CayleyUpdate]] = {}


def with_cayley_update(kind: type[torch.optim.Optimizer]) -> type[CayleyUpdate]:
    """A subclass of an optimiser that has the Cayley update of the group "unitary".

    >>> with_cayley_update(torch.optim.Adam).__mro__[:3]
    (<class 'kru.optim.cayley.CayleyAdam'>, <class 'kru.optim.cayley.CayleyUpdate'>, <class 'torch.optim.adam.Adam'>)
    """
    if kind not in _made:
        text = f'{kind.__name__}, with the Cayley update of the group "unitary".'
        body = {"__doc__": text, "__module__": __name__}
        _made[kind] = type(f"Cayley{kind.__name__}", (CayleyUpdate, kind), body)
    return _made[kind]


def _restored(kind: type[torch.optim.Optimizer]) -> CayleyUpdate:
    made = with_cayley_update(kind)
    return made.__new__(made)


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
