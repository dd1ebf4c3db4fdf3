"""Kronecker factors that are parameters themselves."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kru.linalg.factors import Shapes, check_rank, square_shapes
from kru.linalg.unitary import initial_factor
from kru.matrices.base import CONSTRAINTS, RecurrentMatrix
from kru.matrices.factored import Factored
from kru.matrices.unitary_kronecker import UnitaryKroneckerMatrix
from kru.ops.precision import computing_dtype


class KroneckerMatrix(Factored, RecurrentMatrix):
    """W = W_0 ⊗ ... ⊗ W_{F-1} with every entry of every factor a parameter `factor_0`, `factor_1`, ...

    With rank R > 1, W is a sum of R such products, and `factor_f` has one more dimension in front: `factor_f[r]`
    is factor f of term r. W starts as its first term, which is unitary. The first factor of each other term starts
    at zero and its other factors at random unitary matrices: the terms contribute nothing yet, but the first
    factor's gradient is not zero, nor are the others' once it has moved.

    With a gain g, W starts as g times that: every factor is multiplied by g^(1/F), so that the penalty pulls at all
    of them alike.

    >>> import torch
    >>> matrix = KroneckerMatrix(((2, 2), (3, 3)), field="complex")
    >>> [tuple(factor.shape) for factor in matrix.factors()]
    [(2, 2, 2), (2, 3, 3)]
    >>> matrix
    KroneckerMatrix(2x2 ⊗ 3x3, field=complex, constraint=soft)
    >>> [tuple(factor.shape) for factor in KroneckerMatrix(((2, 2), (3, 3)), field="real", gates=4, rank=5).factors()]
    [(5, 4, 2, 2), (5, 4, 3, 3)]
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
        rank: int = 1,
        gain: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(shapes, field=field, gates=gates, constraint=constraint, rank=rank)
        self.init = init
        self.gain = gain
        leading = (2,) if field == "complex" else (gates,) if gates > 1 else ()
        if rank > 1:
            leading = (rank, *leading)
        for f, shape in enumerate(shapes):
            empty = torch.empty(*leading, *shape, device=device, dtype=dtype)
            self.register_parameter(f"factor_{f}", nn.Parameter(empty))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.factor_0.dtype)
        return [factor.to(dtype) for factor in self.factor_parameters]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        for f, (rows, columns) in enumerate(self.shapes):
            factor = getattr(self, f"factor_{f}")
            terms = [
                initial_factor(rows, columns, field=self.field, method=method, count=self.gates)
                for method in (self.init, *["haar"] * (self.rank - 1))
            ]
            factor.copy_(torch.stack(terms).reshape(factor.shape))
        if self.rank > 1:
            self.factor_0[1:] = 0
        if self.gain != 1:
            for factor in self.factor_parameters:
                factor.mul_(self.gain ** (1 / len(self.shapes)))

    def _random_factor(self, f: int) -> Tensor:
        return initial_factor(*self.shapes[f], field=self.field, count=self.gates)


def kronecker_matrix(
    size: int,
    factors: Sequence[int | tuple[int, int]] | None,
    *,
    field: str,
    gates: int = 1,
    constraint: str = "soft",
    init: str = "haar",
    rank: int = 1,
    gain: float = 1.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RecurrentMatrix:
    """The matrix module for a layer's `factors`, `rank`, `constraint` and `recurrent_gain` arguments."""
    check_rank(rank)
    check_gain(gain, constraint)
    if constraint not in CONSTRAINTS:
        raise ValueError(f"constraint: expected one of {', '.join(CONSTRAINTS)}, got {constraint!r}")
    shapes = square_shapes(factors, size)
    if constraint == "exact":
        if rank > 1:
            raise ValueError(
                f'rank: expected 1 with constraint="exact", got {rank}: a sum of unitary matrices is not unitary'
            )
        return UnitaryKroneckerMatrix(shapes, field=field, gates=gates, init=init, device=device, dtype=dtype)
    return KroneckerMatrix(
        shapes,
        field=field,
        gates=gates,
        constraint=constraint,
        init=init,
        rank=rank,
        gain=gain,
        device=device,
        dtype=dtype,
    )


def check_gain(gain: float, constraint: str) -> None:
    if isinstance(gain, bool) or not isinstance(gain, int | float) or not 0 < gain < math.inf:
        raise ValueError(f"recurrent_gain: expected a finite number above 0, got {gain!r}")
    if gain != 1 and constraint == "exact":
        raise ValueError(
            f'recurrent_gain: expected 1 with constraint="exact", got {gain}: '
            "a unitary matrix times another number is not unitary"
        )
