"""The recurrent matrix of the LRU: a stable complex diagonal."""

import math

import torch
from torch import Tensor, nn

from kru.matrices.base import RecurrentMatrix
from kru.ops.precision import computing_dtype


class StableDiagonal(RecurrentMatrix):
    """W = diag(lambda) with lambda_j = exp(-exp(nu_j) + i exp(theta_j)), of modulus below one for any parameters.

    At the start, the lambda_j are uniform on the ring of radii `least` to `most` in the complex plane, with phases
    from 0 to `phase`. The parameters `nu` and `theta` are (N,) each.

    Source: Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu, De, "Resurrecting Recurrent Neural Networks for Long
    Sequences", 2023, arXiv:2303.06349.

    >>> import torch
    >>> matrix = StableDiagonal(4, least=0.9, most=0.99, dtype=torch.float64)
    >>> modulus = torch.complex(*matrix.diagonal().chunk(2)).abs()
    >>> bool((modulus >= 0.9).all() and (modulus <= 0.99).all())
    True
    """

    def __init__(
        self,
        size: int,
        least: float = 0.0,
        most: float = 1.0,
        *,
        phase: float = 2 * math.pi,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not 0 <= least <= most <= 1:
            raise ValueError(f"least, most: expected 0 <= least <= most <= 1, got {least!r} and {most!r}")
        if not 0 < phase <= 2 * math.pi:
            raise ValueError(f"phase: expected above 0, up to 2 pi, got {phase!r}")
        super().__init__(((size, size),), field="complex", gates=1, constraint="none")
        self.size = size
        self.least, self.most, self.phase = float(least), float(most), float(phase)
        self.nu = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
        self.theta = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
        self.reset_parameters()

    def diagonal(self) -> Tensor:
        """lambda (2N,), real parts then imaginary parts; in float32 where parameters are in half precision."""
        dtype = computing_dtype(self.nu.dtype)
        modulus, angle = torch.exp(-torch.exp(self.nu.to(dtype))), torch.exp(self.theta.to(dtype))
        return torch.cat([modulus * torch.cos(angle), modulus * torch.sin(angle)])

    def factors(self) -> list[Tensor]:
        return [torch.stack([torch.diag(plane) for plane in self.diagonal().chunk(2)])]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        # A small margin keeps the logarithms finite.
        squares = torch.empty_like(self.nu).uniform_(self.least**2, self.most**2).clamp(1e-6, 1 - 1e-6)
        self.nu.copy_(torch.log(-0.5 * torch.log(squares)))
        self.theta.uniform_(0, self.phase).clamp_(min=1e-6).log_()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, least={self.least:g}, most={self.most:g}"
