"""A feed-forward layer whose matrix is a Kronecker product."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kru.linalg.factors import check_rank, parse_factors, product_text, rectangular_shapes
from kru.linalg.unitary import initial_factor
from kru.matrices.factored import Factored
from kru.nn.reshaping import Reshaped, merge, raise_rank, split
from kru.ops import kron_matmul
from kru.ops.precision import autocasting, computing_dtype, without_autocast
from kru.ops.sharded import draw_whole_parameters


class KroneckerLinear(Factored):
    """y = (W_0 ⊗ ... ⊗ W_{F-1}) x + b, with factors of any shapes: `torch.nn.Linear` with few parameters.

    Args:
        in_features: K = prod_f Q_f.
        out_features: N = prod_f P_f.
        factors: pairs (P_f, Q_f), rows and columns of each factor; a number stands for a square one. None
            pairs the prime factors of `out_features` and `in_features`.
        bias: whether to add b.
        rank: R > 1 makes the matrix a sum of R Kronecker products, with R times the parameters and the cost.

    The parameters are `factor_0`, `factor_1`, ... of shape (P_f, Q_f), with rank R > 1 (R, P_f, Q_f), drawn at
    random with orthonormal rows or columns, so that a unit's variance is that of an input, and `bias` (N,).

    Shapes:
        input (..., K), output (..., N).

    >>> import torch, kru
    >>> layer = kru.KroneckerLinear(1024, 512, factors=[(16, 32), (32, 32)])
    >>> layer(torch.randn(8, 1024)).shape
    torch.Size([8, 512])
    >>> kru.parameter_count(layer).total
    2048
    """

    field = "real"
    factor_0: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        factors: Sequence[int | tuple[int, int]] | None = None,
        bias: bool = True,
        *,
        rank: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name}: expected a number greater than zero, got {value}")
        check_rank(rank)
        if factors is None:
            factors = rectangular_shapes(out_features, in_features)
        self.in_features = in_features
        self.out_features = out_features
        self.rank = rank
        self.shapes = parse_factors(factors, out_features, in_features, "out_features", "in_features")
        for f, shape in enumerate(self.shapes):
            empty = torch.empty((rank, *shape) if rank > 1 else shape, device=device, dtype=dtype)
            self.register_parameter(f"factor_{f}", nn.Parameter(empty))
        vector = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", vector)
        self.reset_parameters()

    @property
    def factors(self) -> list[Tensor]:
        """The factors, (P_f, Q_f) or, with rank R > 1, (R, P_f, Q_f)."""
        return list(self.factor_parameters)

    def reset_parameters(self) -> None:
        """Draw new initial values. Where parameters are sharded over processes, give all of them the same seed."""
        draw_whole_parameters(self, self._reset)

    @torch.no_grad()
    def _reset(self) -> None:
        for f, factor in enumerate(self.factors):
            factor.copy_(self._random_factor(f, self.rank).reshape(factor.shape))
        self.factor_0.div_(math.sqrt(self.rank))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            self.bias.uniform_(-bound, bound)

    def _random_factor(self, f: int, count: int = 1) -> Tensor:
        rows, columns = self.shapes[f]
        return math.sqrt(max(1, rows / columns)) * initial_factor(rows, columns, field="real", count=count)

    def forward(self, input: Tensor) -> Tensor:
        stored = self.factor_0.dtype
        if input.dtype != stored and not autocasting(input.device.type):
            raise ValueError(f"input: expected the weights' dtype {stored}, got {input.dtype}")
        if input.shape[-1:] != (self.in_features,):
            raise RuntimeError(
                f"input: expected shape (..., in_features={self.in_features}), got {tuple(input.shape)}"
            )
        dtype = computing_dtype(stored)
        with without_autocast(input.device.type):
            output = kron_matmul(input.to(dtype), [factor.to(dtype) for factor in self.factors])
            if self.bias is not None:
                output = output + self.bias.to(dtype)
        return output.to(stored)

    def merge(self, i: int, *, optimizer: torch.optim.Optimizer | None = None) -> Reshaped:
        """Replace factors i and i + 1 by one, their product: the same function with more parameters. See
        `kru.KRU.merge`."""
        return merge(self, [self], i, optimizer)

    def split(
        self,
        i: int,
        factors: Sequence[int | tuple[int, int]],
        *,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Reshaped:
        """Replace factor i by the two whose product is nearest to it. See `kru.KRU.split`."""
        return split(self, [self], i, factors, optimizer)

    def raise_rank(self, by: int = 1, *, optimizer: torch.optim.Optimizer | None = None) -> Reshaped:
        """Add terms to the sum of Kronecker products, which contribute nothing yet. See `kru.KRU.raise_rank`."""
        return raise_rank(self, [self], by, optimizer)

    def extra_repr(self) -> str:
        terms = f", rank={self.rank}" if self.rank > 1 else ""
        product = product_text(self.shapes)
        return f"{self.in_features}, {self.out_features}, {product}{terms}, bias={self.bias is not None}"
