"""The recurrent matrix of the expRNN: the exponential of a skew-symmetric matrix."""

import math

import torch
from torch import Tensor, nn

from kru.matrices.base import RecurrentMatrix
from kru.matrices.triangle import skew_symmetric
from kru.ops.precision import computing_dtype, without_autocast


class ExponentialMatrix(RecurrentMatrix):
    """W = exp(A) with a skew-symmetric A, which is orthogonal for every A; every rotation has this form.

    The parameter `skew` has the N(N - 1)/2 entries of A below its diagonal. A starts with blocks
    [[0, -s], [s, 0]] on the diagonal, s uniform in [-pi, pi], so that W starts with rotations of pairs of
    units by random angles (Henaff, Szlam, LeCun, 2016).

    Source: Lezcano-Casado, Martinez-Rubio, "Cheap Orthogonal Constraints in Neural Networks: A Simple
    Parametrization of the Orthogonal and Unitary Group", 2019, arXiv:1901.08428.

    >>> import torch
    >>> matrix = ExponentialMatrix(5, dtype=torch.float64)
    >>> w = matrix.dense_factors()[0]
    >>> torch.allclose(w.T @ w, torch.eye(5, dtype=w.dtype))
    True
    """

    def __init__(
        self, size: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(((size, size),), field="real", gates=1, constraint="exact")
        self.size = size
        self.skew = nn.Parameter(torch.empty(size * (size - 1) // 2, device=device, dtype=dtype))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        # In single precision the result would be 1e-5 away from orthogonal, 1% over a thousand time steps.
        skew = skew_symmetric(self.skew.double(), self.size)
        with without_autocast(skew.device.type):
            return [torch.matrix_exp(skew).to(computing_dtype(self.skew.dtype))]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.skew.zero_()
        # Entry (n, n - 1) closes row n of the triangle, the last of n(n + 1)/2 entries.
        odd = torch.arange(1, self.size, 2, device=self.skew.device)
        angles = torch.empty(len(odd), dtype=self.skew.dtype, device=self.skew.device)
        self.skew[odd * (odd + 1) // 2 - 1] = angles.uniform_(-math.pi, math.pi)
