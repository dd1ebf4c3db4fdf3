"""Deep and parallel reservoirs: several that act as one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

States = tuple[Tensor, ...]


class _Composed(nn.Module):
    """Several reservoirs behind the interface of one. The states of all of them are the output."""

    def __init__(self, reservoirs: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(reservoirs) == 0:
            raise ValueError("reservoirs: expected at least one, got none")
        self.reservoirs = nn.ModuleList(reservoirs)
        self.input_size: int = reservoirs[0].input_size  # type: ignore[assignment]
        self.output_size = sum(cast(int, reservoir.output_size) for reservoir in reservoirs)

    def forward(self, input: Tensor, hx: States | None = None) -> tuple[Tensor, States]:
        """Inputs (T, B, D) to states (T, B, S), S the sum over all reservoirs, and the last states, one of each."""
        raise NotImplementedError

    def step(self, input: Tensor, state: States | None = None) -> tuple[Tensor, States]:
        """One time step: input (B, D), output (B, S)."""
        output, states = self.forward(input.unsqueeze(0), state)
        return output[0], states


class Deep(_Composed):
    """Each reservoir is driven by the states of the one before it; the output has the states of all layers.

    >>> import torch, kru
    >>> layers = [kru.reservoir.Reservoir(3, 64), kru.reservoir.Reservoir(64, 128)]
    >>> kru.reservoir.Deep(layers)(torch.randn(10, 1, 3))[0].shape
    torch.Size([10, 1, 192])
    """

    def __init__(self, reservoirs: Sequence[nn.Module]) -> None:
        super().__init__(reservoirs)
        for k, (lower, upper) in enumerate(pairwise(reservoirs)):
            if upper.input_size != lower.output_size:
                raise ValueError(
                    f"reservoirs[{k + 1}]: expected input_size={lower.output_size}, the output of the one below, "
                    f"got {upper.input_size}"
                )

    def forward(self, input: Tensor, hx: States | None = None) -> tuple[Tensor, States]:
        outputs, states = [], []
        for k, reservoir in enumerate(self.reservoirs):
            input, last = reservoir(input, None if hx is None else hx[k])
            outputs.append(input)
            states.append(last)
        return torch.cat(outputs, dim=-1), tuple(states)


class Parallel(_Composed):
    """Every reservoir sees the same input; the output has the states of all.

    Reservoirs of different seeds, radii or leaks side by side cover several time scales.

    >>> import torch, kru
    >>> two = [kru.reservoir.Reservoir(3, 64, spectral_radius=radius) for radius in (0.5, 0.99)]
    >>> kru.reservoir.Parallel(two)(torch.randn(10, 1, 3))[0].shape
    torch.Size([10, 1, 128])
    """

    def __init__(self, reservoirs: Sequence[nn.Module]) -> None:
        super().__init__(reservoirs)
        for k, reservoir in enumerate(reservoirs):
            if reservoir.input_size != self.input_size:
                raise ValueError(
                    f"reservoirs[{k}]: expected input_size={self.input_size} as in reservoirs[0], "
                    f"got {reservoir.input_size}"
                )

    def forward(self, input: Tensor, hx: States | None = None) -> tuple[Tensor, States]:
        outputs, states = [], []
        for k, reservoir in enumerate(self.reservoirs):
            output, last = reservoir(input, None if hx is None else hx[k])
            outputs.append(output)
            states.append(last)
        return torch.cat(outputs, dim=-1), tuple(states)
