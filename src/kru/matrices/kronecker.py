"""Kronecker factors that are parameters themselves."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kru.factors import Shapes, square_shapes
from kru.matrices.base import CONSTRAINTS, RecurrentMatrix
from kru.matrices.exact import UnitaryKroneckerMatrix
from kru.matrices.factored import Factored
from kru.precision import computing_dtype
from kru.unitary import initial_factor


class KroneckerMatrix(Factored, RecurrentMatrix):
    """W = W_0 ⊗ ... ⊗ W_{F-1} with every entry of every factor a parameter `factor_0`, `factor_1`, ...

    >>> import torch
    >>> matrix = KroneckerMatrix(((2, 2), (3, 3)), field="complex")
    >>> [tuple(factor.shape) for factor in matrix.factors()]
    [(2, 2, 2), (2, 3, 3)]
    >>> matrix
    KroneckerMatrix(2x2 ⊗ 3x3, field=complex, constraint=soft)
    """

    factor_0: nn.Parameter

    def __init__(
        self,
        shapes: Shapes,
        *,
        field: str,
        gates: int = 1,
        constraint: str = "soft",
        init: str = "haar",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(shapes, field=field, gates=gates, constraint=constraint)
        self.init = init
        leading = (2,) if field == "complex" else (gates,) if gates > 1 else ()
        for f, shape in enumerate(shapes):
            empty = torch.empty(*leading, *shape, device=device, dtype=dtype)
            self.register_parameter(f"factor_{f}", nn.Parameter(empty))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.factor_0.dtype)
        return [factor.to(dtype) for factor in self.factor_parameters]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for f, (rows, columns) in enumerate(self.shapes):
            factor = getattr(self, f"factor_{f}")
            drawn = initial_factor(rows, columns, field=self.field, method=self.init, count=self.gates)
            factor.copy_(drawn.reshape(factor.shape))


def kronecker_matrix(
    size: int,
    factors: Sequence[int | tuple[int, int]] | None,
    *,
    field: str,
    gates: int = 1,
    constraint: str = "soft",
    init: str = "haar",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RecurrentMatrix:
    """The matrix module for a layer's `factors` and `constraint` arguments."""
    if constraint not in CONSTRAINTS:
        raise ValueError(f"constraint: expected one of {', '.join(CONSTRAINTS)}, got {constraint!r}")
    shapes = square_shapes(factors, size)
    if constraint == "exact":
        return UnitaryKroneckerMatrix(shapes, field=field, gates=gates, init=init, device=device, dtype=dtype)
    return KroneckerMatrix(
        shapes, field=field, gates=gates, constraint=constraint, init=init, device=device, dtype=dtype
    )
