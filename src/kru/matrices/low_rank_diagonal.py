"""Recurrent matrices of low rank plus a diagonal."""

import torch
from torch import Tensor, nn

from kru.matrices.base import RecurrentMatrix
from kru.ops.precision import computing_dtype


class LowRankDiagonal(RecurrentMatrix):
    """W = L R + diag(d) for each gate, with L (N, K), R (K, N) and d (N,): N(2K + 1) parameters a gate.

    L and R start uniform within sqrt(6 / (N + K)), d within 0.01.

    Source: Miceli Barone, "Low-rank passthrough neural networks", 2016, arXiv:1603.03116.

    >>> import torch
    >>> matrix = LowRankDiagonal(6, 2, gates=3)
    >>> matrix.factors()[0].shape, sum(p.numel() for p in matrix.parameters())
    (torch.Size([3, 6, 6]), 90)
    """

    def __init__(
        self,
        size: int,
        low_rank: int,
        *,
        gates: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if isinstance(low_rank, bool) or not isinstance(low_rank, int) or low_rank < 1:
            raise ValueError(f"low_rank: expected a whole number of at least 1, got {low_rank!r}")
        super().__init__(((size, size),), field="real", gates=gates, constraint="none")
        self.low_rank = low_rank
        each = (gates,) if gates > 1 else ()
        self.left = nn.Parameter(torch.empty(*each, size, low_rank, device=device, dtype=dtype))
        self.right = nn.Parameter(torch.empty(*each, low_rank, size, device=device, dtype=dtype))
        self.diagonal = nn.Parameter(torch.empty(*each, size, device=device, dtype=dtype))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.left.dtype)
        return [self.left.to(dtype) @ self.right.to(dtype) + torch.diag_embed(self.diagonal.to(dtype))]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        for matrix in (self.left, self.right):
            bound = (6 / (matrix.shape[-1] + matrix.shape[-2])) ** 0.5
            matrix.uniform_(-bound, bound)
        self.diagonal.uniform_(-0.01, 0.01)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, low_rank={self.low_rank}"
