"""The recurrent matrix of the AntisymmetricRNN."""

import math

import torch
from torch import Tensor, nn

from kru.matrices.base import RecurrentMatrix
from kru.matrices.triangle import skew_symmetric
from kru.ops.precision import computing_dtype


class AntisymmetricMatrix(RecurrentMatrix):
    """A = M - M^T - gamma I, whose eigenvalues are -gamma plus an imaginary number.

    Of M only the N(N - 1)/2 entries below the diagonal matter: the parameter `skew`, drawn from a normal
    distribution with the standard deviation sigma / sqrt(N). gamma is fixed.

    Source: Chang, Chen, Haber, Chi, "AntisymmetricRNN: A Dynamical System View on Recurrent Neural
    Networks", 2019, arXiv:1902.09689.

    >>> import torch
    >>> matrix = AntisymmetricMatrix(3, 0.5, dtype=torch.float64)
    >>> torch.linalg.eigvals(matrix.factors()[0]).real
    tensor([-0.5000, -0.5000, -0.5000], dtype=torch.float64, grad_fn=...)
    """

    def __init__(
        self,
        size: int,
        diffusion: float = 0.01,
        *,
        spread: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(((size, size),), field="real", gates=1, constraint="none")
        self.size = size
        self.diffusion = diffusion
        self.spread = spread
        self.skew = nn.Parameter(torch.empty(size * (size - 1) // 2, device=device, dtype=dtype))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        skew = self.skew.to(computing_dtype(self.skew.dtype))
        eye = torch.eye(self.size, dtype=skew.dtype, device=skew.device)
        return [skew_symmetric(skew, self.size) - self.diffusion * eye]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.skew.normal_(std=self.spread / math.sqrt(self.size))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, diffusion={self.diffusion}"
