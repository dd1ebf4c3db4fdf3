"""The recurrent matrix of the restricted-capacity uRNN: phases, reflections and Fourier transforms."""

import math

import torch
from torch import Tensor, nn

from kru.matrices.chain import ChainMatrix
from kru.ops.chain.stages import Diagonal, Fourier, Permutation, Reflection, Stage
from kru.ops.precision import computing_dtype


class RestrictedUnitaryMatrix(ChainMatrix):
    """W = D_3 R_2 F^-1 D_2 P R_1 F D_1, unitary for any values of its 7N parameters.

    D_k is a diagonal of phases exp(i w), R_k = I - 2 v v^H / |v|^2 a reflection with a complex v, F the
    unitary discrete Fourier transform, P a permutation that is drawn once. The parameters are `phases`
    (3, N) and `reflections` (2, 2, N), for each v its real and its imaginary part; `permutation` is a buffer.
    They start as in the paper: w uniform in [-pi, pi], the parts of v uniform in [-1, 1].

    Source: Arjovsky, Shah, Bengio, "Unitary Evolution Recurrent Neural Networks", 2016, arXiv:1511.06464.

    >>> import torch
    >>> matrix = RestrictedUnitaryMatrix(6, dtype=torch.float64)
    >>> w = matrix.dense_factors()[0]
    >>> torch.allclose(w.mH @ w, torch.eye(6, dtype=w.dtype))
    True
    """

    permutation: Tensor

    def __init__(
        self, size: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(size, stage_count=8)
        self.phases = nn.Parameter(torch.empty(3, size, device=device, dtype=dtype))
        self.reflections = nn.Parameter(torch.empty(2, 2, size, device=device, dtype=dtype))
        self.register_buffer("permutation", torch.empty(size, dtype=torch.int64, device=device))
        self.reset_parameters()

    def stages(self) -> list[Stage]:
        dtype = computing_dtype(self.phases.dtype)
        phases = self.phases.to(dtype)
        d1, d2, d3 = torch.complex(phases.cos(), phases.sin())
        v1, v2 = torch.complex(*self.reflections.to(dtype).unbind(1))
        return [
            Diagonal((d1,)),
            Fourier(()),
            Reflection((v1,)),
            Permutation((self.permutation,)),
            Diagonal((d2,)),
            Fourier((), inverse=True),
            Reflection((v2,)),
            Diagonal((d3,)),
        ]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        self.phases.uniform_(-math.pi, math.pi)
        self.reflections.uniform_(-1, 1)
        self.permutation.copy_(torch.randperm(len(self.permutation), device="cpu"))
