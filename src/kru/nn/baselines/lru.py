"""The linear recurrent unit, a diagonal complex recurrence."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from kru.matrices.diagonal import StableDiagonal
from kru.nn.recurrent import Recurrent
from kru.ops.diagonal import diagonal_scan
from kru.ops.scan.reference import input_part


class LRU(Recurrent):
    """A linear recurrence with a complex diagonal matrix, followed by a gated output map::

        h_t = lambda h_{t-1} + gamma (U x_t)                h in C^N, all products but U x_t elementwise
        y_t = gelu(Re(C h_t) + D x_t + b)                   y in R^N
        o_t = y_t sigmoid(G y_t + b')

    All products with h are elementwise, so a state of N complex numbers has 2N recurrent parameters, see
    `kru.matrices.StableDiagonal`; the nonlinearity is between layers only. gamma starts as sqrt(1 - |lambda|^2) and is
    trained. The first two lines are the LRU of the paper, the third is the gated output map of its blocks; the
    normalisation and the skip connection of the blocks are left out.

    Source: Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu, De, "Resurrecting Recurrent Neural Networks for Long
    Sequences", 2023, arXiv:2303.06349.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: complex units N, and the number of features of the output.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`.
        least, most: the smallest and the largest initial |lambda|.
        phase: the largest initial phase of lambda.
        train_recurrent: False keeps the initial lambda.
        input_scale: scale of the initial U.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); state (layers * directions, B, 2N), real
        parts then imaginary parts.

    >>> import torch, kru
    >>> rnn = kru.baselines.LRU(10, 64)
    >>> output, h = rnn(torch.randint(10, (50, 4)))
    >>> output.shape, h.shape, kru.parameter_count(rnn).recurrent
    (torch.Size([50, 4, 64]), torch.Size([1, 4, 128]), 128)
    """

    cell = "lru"
    gates = ("h",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        least: float = 0.0,
        most: float = 1.0,
        phase: float = 2 * math.pi,
        train_recurrent: bool = True,
        input_scale: float = 1.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            matrix=partial(StableDiagonal, hidden_size, least, most, phase=phase, device=device, dtype=dtype),
            field="complex",
            nonlinearity="identity",
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )

    @property
    def output_size(self) -> int:
        return self.hidden_size * (2 if self.bidirectional else 1)

    def _bias_sizes(self) -> dict[str, int]:
        return {"bias": self.hidden_size, "gate_bias": self.hidden_size}

    def _own_shapes(self, features: int) -> dict[str, tuple[int, ...]]:
        size = self.hidden_size
        return {
            "log_gamma": (size,),
            "weight_out": (size, 2 * size),
            "weight_skip": (size, features),
            "weight_gate": (size, size),
        }

    def _reset_own(self, suffix: str) -> None:
        for name in ("weight_out", "weight_skip", "weight_gate"):
            nn.init.xavier_uniform_(getattr(self, f"{name}{suffix}"))
        squares = getattr(self, f"recurrent{suffix}").diagonal().square().view(2, -1).sum(0)
        getattr(self, f"log_gamma{suffix}").copy_(0.5 * torch.log1p(-squares))

    def _scan(
        self,
        x: Tensor,
        suffix: str,
        reverse: bool,
        start: tuple[Tensor, ...] | None,
        lengths: Tensor | None,
        reset: Tensor | None,
        dtype: torch.dtype,
        need_states: bool,
        memory: str,
    ) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        def weight(name: str) -> Tensor:
            value: Tensor = getattr(self, f"{name}{suffix}")
            return value.to(dtype)

        bias, gate_bias = (weight(name) if self.bias else None for name in self._bias_sizes())
        gamma = weight("log_gamma").exp().repeat(2)
        states, last = diagonal_scan(
            gamma * input_part(x, weight("weight_ih"), None),
            getattr(self, f"recurrent{suffix}").diagonal(),
            h0=None if start is None else start[0],
            lengths=lengths,
            reset=reset,
            reverse=reverse,
        )
        # Re(C h) is a real map of the real and the imaginary parts.
        y = functional.linear(states, weight("weight_out")) + input_part(x, weight("weight_skip"), bias)
        y = functional.gelu(y)
        output = y * torch.sigmoid(functional.linear(y, weight("weight_gate"), gate_bias))
        if lengths is not None:
            steps = torch.arange(len(output), device=output.device)[:, None]
            output = output.where((steps < lengths.to(output.device)).unsqueeze(-1), 0.0)
        return output, (last,)
