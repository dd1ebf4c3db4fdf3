"""The AntisymmetricRNN, plain and gated."""

import math
from functools import partial

import torch
from torch import Tensor

from kru.matrices import AntisymmetricMatrix
from kru.nn.recurrent import Recurrent
from kru.ops.euler import euler_scan
from kru.ops.scan.reference import input_part


class AntisymmetricRNN(Recurrent):
    """Forward Euler steps of a stable differential equation, with A = M - M^T - gamma I::

        h_t = h_{t-1} + epsilon tanh(A h_{t-1} + U x_t + b)                      plain
        h_t = h_{t-1} + epsilon z_t tanh(A h_{t-1} + U x_t + b)                  gated
        z_t = sigmoid(A h_{t-1} + U^z x_t + b^z)

    The eigenvalues of A are near the imaginary axis, so a gradient neither grows nor fades over many small
    steps. Both products share one A, whose N(N - 1)/2 entries are the only recurrent parameters, see
    `kru.matrices.AntisymmetricMatrix`. A layer has N(N - 1)/2 + N(D + 1) parameters, gated
    N(N - 1)/2 + 2N(D + 1). This recurrence differs from `kru.ops.scan` and has its own time loop,
    `kru.ops.euler.euler_scan`.

    Source: Chang, Chen, Haber, Chi, "AntisymmetricRNN: A Dynamical System View on Recurrent Neural
    Networks", 2019, arXiv:1902.09689.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. One bias for each gate.
        gated: whether there is a gate z.
        step: epsilon, the size of a step.
        diffusion: gamma, at least 0.
        spread: sigma; the entries of M start with a standard deviation of sigma / sqrt(N).
        train_recurrent: False keeps the initial A.
        input_scale: scale of the initial input weights.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); state (layers * directions, B, N).
        Gated, `weight_ih_l0` (2N, D) and `bias_l0` (2N,) have the gate z first.

    >>> import torch, kru
    >>> rnn = kru.baselines.AntisymmetricRNN(1, 128, gated=True)
    >>> output, h = rnn(torch.randn(50, 4, 1))
    >>> output.shape, kru.parameter_count(rnn)
    (torch.Size([50, 4, 128]), ParameterCount(total=8640, recurrent=8128))
    """

    cell = "antisymmetric"

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
        gated: bool = False,
        step: float = 0.01,
        diffusion: float = 0.01,
        spread: float = 1.0,
        train_recurrent: bool = True,
        input_scale: float = 1.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, value, least in (("step", step, "above 0"), ("diffusion", diffusion, "at least 0")):
            if not (math.isfinite(value) and value >= 0 and (value > 0 or name == "diffusion")):
                raise ValueError(f"{name}: expected a number {least}, got {value!r}")
        self.gates = ("z", "h") if gated else ("h",)
        self.gated = gated
        self.step_size = step
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            matrix=partial(
                AntisymmetricMatrix, hidden_size, diffusion, spread=spread, device=device, dtype=dtype
            ),
            field="real",
            nonlinearity="tanh",
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )

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
        bias = getattr(self, f"bias{suffix}")
        part = input_part(
            x, getattr(self, f"weight_ih{suffix}").to(dtype), None if bias is None else bias.to(dtype)
        )
        [matrix] = getattr(self, f"recurrent{suffix}").factors()
        states, last = euler_scan(
            part,
            matrix,
            step=self.step_size,
            gated=self.gated,
            h0=None if start is None else start[0],
            lengths=lengths,
            reset=reset,
            reverse=reverse,
        )
        return states, (last,)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gated={self.gated}, step={self.step_size}"
