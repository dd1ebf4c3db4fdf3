"""The recurrent matrix of the full-capacity uRNN: any unitary matrix."""

import torch
from torch import Tensor, nn

from kru.linalg.unitary import initial_factor
from kru.matrices.base import RecurrentMatrix
from kru.matrices.unitary_kronecker import polished
from kru.ops.precision import computing_dtype, without_autocast


class FullUnitaryMatrix(RecurrentMatrix):
    """A unitary W whose 2N^2 entries are the parameter `unitary` (2, N, N), real part first.

    Nothing in the parametrisation keeps it unitary: the optimiser does. `kru.optimizer` moves it along the
    unitary matrices by the multiplicative Cayley update, see `kru.optim.cayley.CayleyUpdate`. It starts uniformly
    distributed over the unitary matrices.

    Source: Wisdom, Powers, Hershey, Le Roux, Atlas, "Full-Capacity Unitary Recurrent Neural Networks", 2016,
    arXiv:1611.00035.

    >>> FullUnitaryMatrix(3)
    FullUnitaryMatrix(3x3, field=complex, constraint=exact)
    """

    def __init__(
        self, size: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(((size, size),), field="complex", gates=1, constraint="exact")
        self.unitary = nn.Parameter(torch.empty(2, size, size, device=device, dtype=dtype))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.unitary.dtype)
        if dtype == self.unitary.dtype:
            return [self.unitary]
        with without_autocast(self.unitary.device.type):
            return [polished(self.unitary.to(dtype), self.field)]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        size = self.unitary.shape[-1]
        self.unitary.copy_(initial_factor(size, size, field="complex")[0])
