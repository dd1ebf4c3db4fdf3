"""The recurrent matrix of the restricted-capacity uRNN: phases, reflections and Fourier transforms."""

import math

import torch
from torch import Tensor, nn

from kru.matrices.base import RecurrentMatrix
from kru.precision import computing_dtype


class RestrictedUnitaryMatrix(RecurrentMatrix):
    """W = D_3 R_2 F^-1 D_2 P R_1 F D_1, unitary whatever its 7N parameters are.

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
        super().__init__(((size, size),), field="complex", gates=1, constraint="exact")
        self.phases = nn.Parameter(torch.empty(3, size, device=device, dtype=dtype))
        self.reflections = nn.Parameter(torch.empty(2, 2, size, device=device, dtype=dtype))
        self.register_buffer("permutation", torch.empty(size, dtype=torch.int64, device=device))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.phases.dtype)
        phases = self.phases.to(dtype)
        d1, d2, d3 = torch.complex(phases.cos(), phases.sin())
        v1, v2 = torch.complex(*self.reflections.to(dtype).unbind(1))
        # Row k of x becomes W e_k.
        x = torch.fft.fft(torch.diag(d1), norm="ortho")
        x = _reflect(x, v1)[:, self.permutation] * d2
        x = _reflect(torch.fft.ifft(x, norm="ortho"), v2) * d3
        return [torch.stack([x.real.mT, x.imag.mT])]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.phases.uniform_(-math.pi, math.pi)
        self.reflections.uniform_(-1, 1)
        self.permutation.copy_(torch.randperm(len(self.permutation), device="cpu"))


def _reflect(x: Tensor, v: Tensor) -> Tensor:
    """(I - 2 v v^H / |v|^2) on each row of x."""
    along = x @ v.conj() / v.abs().square().sum()
    return x - 2 * along.unsqueeze(-1) * v
