"""The recurrent matrix of the EURNN: layers of rotations of pairs of units."""

import math

import torch
from torch import nn

from kru.matrices.chain import ChainMatrix
from kru.ops.chain.stages import Diagonal, Rotations, Stage
from kru.ops.precision import computing_dtype

ARRANGEMENTS = ("tunable", "fft")


class RotationMatrix(ChainMatrix):
    """W = D F_1 F_2 ... F_L, unitary for any angles.

    D is a diagonal of phases exp(i w). A layer F_l takes the units in pairs (a, b) and turns each pair by its
    own angles::

        a' = exp(i phi) (cos(theta) a - sin(theta) b)
        b' = sin(theta) a + cos(theta) b

    Which units are paired is the arrangement:

    - "tunable": neighbours, (0, 1), (2, 3), ... in layers 1, 3, ... and (1, 2), (3, 4), ... in layers 2, 4,
      ...; L, the capacity, is free, and L = N reaches every unitary matrix.
    - "fft": log2 N layers, in which the partner is N/2, N/4, ..., 1 units away, so that every unit
      meets every other; N is a power of two.

    The parameters are `theta` and `phi`, the angles of all pairs from the first layer to the last, and
    `omega` (N,), the phases w: N(L + 1) in all, or less for the pairs that are lacking at the ends of the tunable
    layers. All start uniform in [-pi, pi].

    Source: Jing, Shen, Dubcek, Peurifoy, Skirlo, LeCun, Tegmark, Soljacic, "Tunable Efficient Unitary Neural
    Networks (EUNN) and their application to RNNs", 2017, arXiv:1612.05231.

    >>> import torch
    >>> matrix = RotationMatrix(8, arrangement="fft", dtype=torch.float64)
    >>> w = matrix.dense_factors()[0]
    >>> torch.allclose(w.mH @ w, torch.eye(8, dtype=w.dtype)), w.abs().min() > 0
    (True, tensor(True))
    """

    def __init__(
        self,
        size: int,
        capacity: int = 2,
        *,
        arrangement: str = "tunable",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if arrangement not in ARRANGEMENTS:
            raise ValueError(f"arrangement: expected one of {', '.join(ARRANGEMENTS)}, got {arrangement!r}")
        if arrangement == "fft" and size & (size - 1):
            raise ValueError(f'hidden_size: expected a power of two with arrangement="fft", got {size}')
        if not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: expected at least 1, got {capacity!r}")
        layers = capacity if arrangement == "tunable" else size.bit_length() - 1
        super().__init__(size, stage_count=layers + 1)
        self.arrangement = arrangement
        self.capacity = layers
        self._pairs = [
            (size - layer % 2) // 2 if arrangement == "tunable" else size // 2
            for layer in range(self.capacity)
        ]
        self.theta = nn.Parameter(torch.empty(sum(self._pairs), device=device, dtype=dtype))
        self.phi = nn.Parameter(torch.empty(sum(self._pairs), device=device, dtype=dtype))
        self.omega = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
        self.reset_parameters()

    def stages(self) -> list[Stage]:
        dtype = computing_dtype(self.theta.dtype)
        thetas = self.theta.to(dtype).split(self._pairs)  # type: ignore[no-untyped-call]
        phis = self.phi.to(dtype).split(self._pairs)  # type: ignore[no-untyped-call]
        omega = self.omega.to(dtype)
        stages: list[Stage] = []
        # The last layer acts first.
        for layer in reversed(range(self.capacity)):
            theta, phi = thetas[layer], phis[layer]
            tensors = (theta.cos(), theta.sin(), torch.complex(phi.cos(), phi.sin()))
            if self.arrangement == "tunable":
                stages.append(Rotations(tensors, first=layer % 2))
            else:
                stages.append(Rotations(tensors, distance=self.size >> (layer + 1)))
        return [*stages, Diagonal((torch.complex(omega.cos(), omega.sin()),))]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for angles in self.parameters():
            angles.uniform_(-math.pi, math.pi)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, arrangement={self.arrangement}, capacity={self.capacity}"
