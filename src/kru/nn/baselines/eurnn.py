"""The efficient unitary RNN by rotations of pairs."""

from functools import partial

import torch

from kru.matrices import RotationMatrix
from kru.nn.baselines.base import Baseline


class EURNN(Baseline):
    """h_t = modReLU(W h_{t-1} + U x_t) with W = D F_1 ... F_L in C^{N x N}, layers of rotations of pairs.

    W is unitary at all times, see `kru.matrices.RotationMatrix`. A layer has about N(L + 2D + 2) parameters: N
    for each layer of rotations (one pair less, N - 2, in every second tunable one of an even N), N of D, 2ND
    of U and N of modReLU's b.

    Source: Jing, Shen, Dubcek, Peurifoy, Skirlo, LeCun, Tegmark, Soljacic, "Tunable Efficient Unitary Neural
    Networks (EUNN) and their application to RNNs", 2017, arXiv:1612.05231.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        capacity: L of the tunable arrangement.
        arrangement: "tunable" (neighbouring units are paired) or "fft" (L = log2 N, all distances).
        nonlinearity: "modrelu", as in the paper, or any other nonlinearity of `kru.KRU`.
        learn_initial: whether h_0 is learned, or zero as in the paper.
        train_recurrent: False keeps the recurrent matrix as it was drawn.
        input_scale, initial_bias: see `kru.KRU`.

    >>> import torch, kru
    >>> rnn = kru.baselines.EURNN(10, 64, arrangement="fft")
    >>> output, h = rnn(torch.randint(10, (50, 4)))
    >>> output.shape, kru.parameter_count(rnn)
    (torch.Size([50, 4, 128]), ParameterCount(total=1792, recurrent=448))
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
        capacity: int = 2,
        arrangement: str = "tunable",
        nonlinearity: str = "modrelu",
        learn_initial: bool = False,
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
            matrix=partial(RotationMatrix, capacity=capacity, arrangement=arrangement),
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
