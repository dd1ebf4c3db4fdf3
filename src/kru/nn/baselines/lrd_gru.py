"""The GRU whose recurrent matrices are of low rank plus a diagonal."""

from functools import partial

import torch
from torch import Tensor

from kru.matrices.low_rank_diagonal import LowRankDiagonal
from kru.nn.baselines.looped import Looped, States, Step, products


class LRDGRU(Looped):
    """The GRU of Cho et al. with three recurrent matrices W = L R + diag(d)::

        r, z = sigmoid(W^r h_{t-1} + U^r x_t + b^r), ...
        n = tanh(W^n (r h_{t-1}) + U^n x_t + b^n)
        h_t = (1 - z) n + z h_{t-1}

    The reset gate acts before the product with W^n; in `kru.KRUGRU` and `torch.nn.GRU` it acts after it. A layer has
    3N(2K + D + 2) parameters, and N more with a learned initial state.

    Source: Miceli Barone, "Low-rank passthrough neural networks", 2016, arXiv:1603.03116.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.GRU`. One bias for each gate.
        low_rank: K, the rank of L R.
        gate_bias: initial bias of the gate z; above 0, the layer remembers from the start.
        learn_initial: whether h_0 is learned, as in the authors' program, or zero.
        train_recurrent: False keeps the initial recurrent matrices.
        input_scale: scale of the initial input weights.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); state (layers * directions, B, N).
        `weight_ih_l0` (3N, D) and `bias_l0` (3N,) have the gates in the order r, z, n.

    >>> import torch, kru
    >>> rnn = kru.baselines.LRDGRU(1, 128, low_rank=50)
    >>> output, h = rnn(torch.randn(20, 4, 1))
    >>> output.shape, kru.parameter_count(rnn)
    (torch.Size([20, 4, 128]), ParameterCount(total=39680, recurrent=38784))
    """

    cell = "gru, reset before the product"
    gates = ("r", "z", "n")

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
        low_rank: int = 24,
        gate_bias: float = 1.0,
        learn_initial: bool = True,
        train_recurrent: bool = True,
        input_scale: float = 1.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.gate_bias = float(gate_bias)
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            matrix=partial(LowRankDiagonal, hidden_size, low_rank, gates=3, device=device, dtype=dtype),
            field="real",
            nonlinearity="tanh",
            train_recurrent=train_recurrent,
            learn_initial=learn_initial,
            input_scale=input_scale,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )

    def _reset_bias(self, bias: Tensor) -> None:
        bias.zero_()
        bias[self.hidden_size : 2 * self.hidden_size] = self.gate_bias

    def _step(self, suffix: str, dtype: torch.dtype) -> Step:
        # L (R h) would cost less than W h where K is below N/2, but takes more operations a step.
        w_r, w_z, w_n = products(getattr(self, f"recurrent{suffix}"), range(3))

        def step(part: Tensor, states: States) -> States:
            (h,) = states
            a_r, a_z, a_n = part.chunk(3, dim=-1)
            r = torch.sigmoid(w_r(h) + a_r)
            z = torch.sigmoid(w_z(h) + a_z)
            n = torch.tanh(w_n(r * h) + a_n)
            return (n + z * (h - n),)

        return step
