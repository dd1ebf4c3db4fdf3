"""The recurrent highway network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.nn.baselines.looped import Looped, States, Step, products, real_matrix


class RHN(Looped):
    """Several highway layers between two time steps, with s_0 = h_{t-1}, h_t = s_L and, for l = 1 ... L::

        n_l = tanh(W^n_l s_{l-1} + U^n x_t [l = 1] + b^n_l)
        g_l = sigmoid(W^g_l s_{l-1} + U^g x_t [l = 1] + b^g_l)
        s_l = g_l n_l + (1 - g_l) s_{l-1}

    The carry gate of the paper is coupled to the transform gate g, as in its experiments. The 2L recurrent matrices are
    dense, or Kronecker products: `factors`. A layer has N(2LN + 2D + 2L) parameters if they are dense.

    Source: Zilly, Srivastava, Koutnik, Schmidhuber, "Recurrent Highway Networks", 2017, arXiv:1607.03474.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. One bias for each gate.
        depth: L, the number of highway layers in a time step.
        gate_bias: initial bias of the gates g; below 0, the layer remembers from the start.
        factors: sizes of the Kronecker factors of each matrix; None for dense matrices.
        constraint, rank, recurrent_gain, train_recurrent, input_scale: see `kru.KRU`.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); state (layers * directions, B, N).
        `weight_ih_l0` (2N, D) has n, g; `bias_l0` (2LN,) and the gates of the matrix have n_1, g_1, n_2, g_2, ...

    >>> import torch, kru
    >>> rnn = kru.baselines.RHN(50, 64, depth=3, factors=[8, 8])
    >>> output, h = rnn(torch.randint(50, (20, 4)))
    >>> output.shape, kru.parameter_count(rnn).recurrent
    (torch.Size([20, 4, 64]), 768)
    """

    cell = "highway"
    gates = ("n", "g")

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
        depth: int = 3,
        gate_bias: float = -2.0,
        factors: Sequence[int | tuple[int, int]] | None = None,
        constraint: str = "none",
        rank: int = 1,
        recurrent_gain: float = 1.0,
        train_recurrent: bool = True,
        input_scale: float = 1.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth: expected a whole number of at least 1, got {depth!r}")
        self.depth = depth
        self.gate_bias = float(gate_bias)
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            matrix=real_matrix(
                hidden_size, factors, 2 * depth, constraint, rank, recurrent_gain, device, dtype
            ),
            field="real",
            nonlinearity="tanh",
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )

    def _bias_sizes(self) -> dict[str, int]:
        return {"bias": 2 * self.depth * self.hidden_size}

    def _reset_bias(self, bias: Tensor) -> None:
        for gates in bias.zero_().view(self.depth, 2, self.hidden_size):
            gates[1] = self.gate_bias

    def _input_bias(self, suffix: str, dtype: torch.dtype) -> Tensor | None:
        # The first 2N entries are those of the layer that sees the input.
        return self._tensor("bias", suffix, dtype)[: 2 * self.hidden_size] if self.bias else None

    def _step(self, suffix: str, dtype: torch.dtype) -> Step:
        weights = products(getattr(self, f"recurrent{suffix}"), range(2 * self.depth))
        inner: list[Tensor | float] = [0.0] * (2 * self.depth)
        if self.bias:
            inner = list(self._tensor("bias", suffix, dtype).chunk(2 * self.depth))

        def step(part: Tensor, states: States) -> States:
            (s,) = states
            add: Sequence[Tensor | float] = part.chunk(2, dim=-1)
            for place in range(0, 2 * self.depth, 2):
                if place:
                    add = inner[place : place + 2]
                n = torch.tanh(weights[place](s) + add[0])
                g = torch.sigmoid(weights[place + 1](s) + add[1])
                s = s + g * (n - s)
            return (s,)

        return step

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, depth={self.depth}"
