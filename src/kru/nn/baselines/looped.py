"""Recurrent layers whose cell has no kernel: a loop over time of PyTorch operations."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from kru.matrices import RecurrentMatrix, kronecker_matrix
from kru.nn.recurrent import Recurrent
from kru.ops.kron import kron_matmul
from kru.ops.scan.reference import input_part
from kru.ops.time_steps import restarts, time_order

States = tuple[Tensor, ...]
Step = Callable[[Tensor, States], States]
"""The states after a step, from the input part of that step and the states before it."""


class Looped(Recurrent):
    """A recurrent layer that a subclass defines by one step; here is what is around the step.

    Layers in PyTorch are differentiable any number of times, and need memory for the intermediate values of each step.
    """

    def _step(self, suffix: str, dtype: torch.dtype) -> Step:
        """The step of one layer and direction."""
        raise NotImplementedError

    def _visible(self, h: Tensor) -> Tensor:
        """What of the first state is the output."""
        return h

    def _input_bias(self, suffix: str, dtype: torch.dtype) -> Tensor | None:
        """The bias that is added to the input part of all steps at once."""
        return self._tensor("bias", suffix, dtype) if self.bias else None

    def _tensor(self, name: str, suffix: str, dtype: torch.dtype) -> Tensor:
        parameter: Tensor = getattr(self, f"{name}{suffix}")
        return parameter.to(dtype)

    def _scan(
        self,
        x: Tensor,
        suffix: str,
        reverse: bool,
        start: States | None,
        lengths: Tensor | None,
        reset: Tensor | None,
        dtype: torch.dtype,
        need_states: bool,
        memory: str,
    ) -> tuple[Tensor | None, States]:
        part = input_part(x, self._tensor("weight_ih", suffix, dtype), self._input_bias(suffix, dtype))
        zeros = part.new_zeros(x.shape[1], self.state_size)
        initial = (zeros,) * len(self.states)
        if self.learn_initial:
            initial = (self._tensor("initial", suffix, dtype).expand_as(zeros), *initial[1:])
        states = initial if start is None else start
        step = self._step(suffix, dtype)
        anew = restarts(reset, lengths, reverse=reverse)
        outputs: list[Tensor] = [zeros] * len(part)
        parts = part.unbind(0)  # the gradient of part[t] would fill a tensor as large as part
        for t in time_order(len(part), reverse):
            if anew is not None:
                states = tuple(
                    torch.where(anew[t], first, s) for first, s in zip(initial, states, strict=True)
                )
            new = step(parts[t], states)
            if lengths is None:
                states, outputs[t] = new, new[0]
            else:
                active = (lengths.to(zeros.device) > t).unsqueeze(-1)
                states = tuple(torch.where(active, n, s) for n, s in zip(new, states, strict=True))
                outputs[t] = torch.where(active, new[0], zeros)
        return self._visible(torch.stack(outputs)), states


def products(matrix: RecurrentMatrix, gates: Sequence[int]) -> list[Callable[[Tensor], Tensor]]:
    """W h for each of these gates of a real matrix."""
    factors = matrix.factors()
    chosen = [[f.select(-3, gate) if matrix.gates > 1 else f for f in factors] for gate in gates]
    return [partial(kron_matmul, factors=factors_of_gate) for factors_of_gate in chosen]


def dense_unless(
    factors: Sequence[int | tuple[int, int]] | None, hidden_size: int
) -> Sequence[int | tuple[int, int]]:
    """The factors, or one dense factor for None."""
    return [hidden_size] if factors is None else factors


def real_matrix(
    hidden_size: int,
    factors: Sequence[int | tuple[int, int]] | None,
    gates: int,
    constraint: str,
    rank: int,
    recurrent_gain: float,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> Callable[[], RecurrentMatrix]:
    """Builds the recurrent matrices of a layer, dense without factors."""
    return partial(
        kronecker_matrix,
        hidden_size,
        dense_unless(factors, hidden_size),
        field="real",
        gates=gates,
        constraint=constraint,
        rank=rank,
        gain=recurrent_gain,
        device=device,
        dtype=dtype,
    )
