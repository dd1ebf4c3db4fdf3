"""The restricted-capacity unitary evolution RNN."""

import torch

from kru.matrices import RestrictedUnitaryMatrix
from kru.nn.baselines.base import Baseline


class RCURNN(Baseline):
    """h_t = modReLU(W h_{t-1} + U x_t) with W = D_3 R_2 F^-1 D_2 P R_1 F D_1 in C^{N x N}, and a learned h_0.

    W has 7N real parameters and is unitary at all times, see `kru.matrices.RestrictedUnitaryMatrix`. A layer has
    N(2D + 10) parameters: 7N of W, 2ND of U, N of modReLU's b and 2N of h_0.

    Source: Arjovsky, Shah, Bengio, "Unitary Evolution Recurrent Neural Networks", 2016, arXiv:1511.06464.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        nonlinearity: "modrelu", as in the paper, or any other nonlinearity of `kru.KRU`.
        learn_initial: whether h_0 is learned, as in the paper, or zero.
        train_recurrent: False keeps the recurrent matrix as it was drawn.
        input_scale, initial_bias: see `kru.KRU`.

    >>> import torch, kru
    >>> rnn = kru.baselines.RCURNN(10, 64)
    >>> output, h = rnn(torch.randint(10, (50, 4)))
    >>> output.shape, kru.parameter_count(rnn)
    (torch.Size([50, 4, 128]), ParameterCount(total=1920, recurrent=448))
    """

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
        nonlinearity: str = "modrelu",
        learn_initial: bool = True,
        train_recurrent: bool = True,
        input_scale: float = 1.0,
        initial_bias: float = 0.0,
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
            matrix=RestrictedUnitaryMatrix,
            field="complex",
            nonlinearity=nonlinearity,
            learn_initial=learn_initial,
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            initial_bias=initial_bias,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )
