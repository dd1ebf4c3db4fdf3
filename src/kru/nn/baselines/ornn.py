"""The orthogonal RNN by Householder reflections."""

from functools import partial

import torch

from kru.matrices import HouseholderMatrix
from kru.nn.baselines.base import Baseline


class ORNN(Baseline):
    """h_t = sigma(W h_{t-1} + U x_t + b) with W = H_1 ... H_K in R^{N x N}, a leaky ReLU, and a learned h_0.

    W is a product of K reflections and orthogonal at all times, see `kru.matrices.HouseholderMatrix`. A layer
    has NK - K(K - 1)/2 + N(D + 2) parameters: those of W, ND of U, N of b and N of h_0.

    Source: Mhammedi, Hellicar, Rahman, Bailey, "Efficient Orthogonal Parametrisation of Recurrent Neural
    Networks Using Householder Reflections", 2017, arXiv:1612.00188.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        reflections: K, from 1 to N; None for N, with which every orthogonal W can be reached.
        nonlinearity: "leaky_relu" (slope 0.1), "tanh", or another one of `kru.KRU`.
        learn_initial: whether h_0 is learned, as in the authors' program, or zero.
        train_recurrent: False keeps the recurrent matrix as it was drawn.
        input_scale, initial_bias: see `kru.KRU`.

    >>> import torch, kru
    >>> rnn = kru.baselines.ORNN(10, 64, reflections=16)
    >>> output, h = rnn(torch.randint(10, (50, 4)))
    >>> output.shape, kru.parameter_count(rnn)
    (torch.Size([50, 4, 64]), ParameterCount(total=1672, recurrent=904))
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
        reflections: int | None = None,
        nonlinearity: str = "leaky_relu",
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
            matrix=partial(HouseholderMatrix, reflections=reflections),
            field="real",
            nonlinearity=nonlinearity,
            learn_initial=learn_initial,
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            initial_bias=initial_bias,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )
