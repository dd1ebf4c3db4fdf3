"""Random projections by a Kronecker product: O(M log M) a vector and no stored matrix."""

import math

import torch
from torch import Tensor

from kru.ops import kron_matmul
from kru.reservoir.checks import check_size


class KroneckerProjection:
    """x -> sqrt(M / k) (H ⊗ ... ⊗ H)[rows] (signs * x), H = [[1, 1], [1, -1]] / sqrt(2), M the next power of two.

    The product is orthogonal and its entries all have the same size. So k random rows of it, behind random signs,
    keep the distances between any n points within 1 ± eps with high probability, for k of the order of log(n) / eps^2.

    Args:
        features: S, the size of the vectors; they are padded with zeros to M.
        components: k <= M.
        seed: of signs and rows.

    >>> import torch
    >>> projection = KroneckerProjection(1000, 256, seed=0)
    >>> projection(torch.ones(3, 1000)).shape
    torch.Size([3, 256])
    """

    def __init__(self, features: int, components: int, *, seed: int | None = None) -> None:
        check_size("features", features)
        check_size("components", components)
        self.features = features
        self.padded = 1 << max(1, (features - 1).bit_length())
        if components > self.padded:
            raise ValueError(
                f"components: expected at most {self.padded}, the features as a power of two, got {components}"
            )
        generator = torch.Generator()
        generator.manual_seed(torch.seed() if seed is None else seed)
        self.signs = 1.0 - 2.0 * torch.randint(0, 2, (features,), generator=generator).double()
        self.rows = torch.randperm(self.padded, generator=generator)[:components].sort().values

    def __call__(self, x: Tensor) -> Tensor:
        """(n, S) -> (n, k)."""
        signed = x * self.signs.to(x)
        if self.padded > self.features:
            signed = torch.nn.functional.pad(signed, (0, self.padded - self.features))
        turned: Tensor = kron_matmul(signed, self._factors(x))
        kept: Tensor = turned[:, self.rows]
        return kept * math.sqrt(self.padded / len(self.rows))

    def back(self, y: Tensor) -> Tensor:
        """(n, k) -> (n, S): the shortest x whose projection is y, as the rows are orthogonal."""
        full = y.new_zeros(len(y), self.padded)
        full[:, self.rows] = y * (len(self.rows) / self.padded) ** 0.5
        turned: Tensor = kron_matmul(full, self._factors(y))
        return turned[:, : self.features] * self.signs.to(y)

    def _factors(self, x: Tensor) -> list[Tensor]:
        hadamard = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=x.dtype, device=x.device) / 2**0.5
        return [hadamard] * (self.padded.bit_length() - 1)
