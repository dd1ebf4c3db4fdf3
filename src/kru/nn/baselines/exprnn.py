"""The orthogonal RNN by the matrix exponential."""

import torch

from kru.matrices import ExponentialMatrix
from kru.nn.baselines.base import Baseline


class ExpRNN(Baseline):
    """h_t = modReLU(W h_{t-1} + U x_t) with W = exp(A) in R^{N x N}, A skew-symmetric.

    W is a rotation at all times, see `kru.matrices.ExponentialMatrix`. A layer has N(N - 1)/2 + N(D + 1)
    parameters: those of A, ND of U and N of modReLU's b.

    Source: Lezcano-Casado, Martinez-Rubio, "Cheap Orthogonal Constraints in Neural Networks: A Simple
    Parametrization of the Orthogonal and Unitary Group", 2019, arXiv:1901.08428.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        nonlinearity: "modrelu", as in the paper, or any other nonlinearity of `kru.KRU`.
        learn_initial: whether h_0 is learned, or zero as in the paper.
        train_recurrent: False keeps the recurrent matrix as it was drawn.
        input_scale, initial_bias: see `kru.KRU`.

    >>> import torch, kru
    >>> rnn = kru.baselines.ExpRNN(10, 64)
    >>> output, h = rnn(torch.randint(10, (50, 4)))
    >>> output.shape, kru.parameter_count(rnn)
    (torch.Size([50, 4, 64]), ParameterCount(total=2720, recurrent=2016))
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
            matrix=ExponentialMatrix,
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
