"""The full-capacity unitary RNN."""

import torch

from kru.matrices import FullUnitaryMatrix
from kru.nn.baselines.base import Baseline


class FCURNN(Baseline):
    """h_t = modReLU(W h_{t-1} + U x_t) with any unitary W in C^{N x N}, and a learned h_0.

    The 2N^2 entries of W are parameters, and the optimiser keeps them unitary: train this layer with
    `kru.optimizer`, whose multiplicative Cayley update moves W along the unitary matrices. A layer has
    N(2N + 2D + 3) parameters: 2N^2 of W, 2ND of U, N of modReLU's b and 2N of h_0.

    Source: Wisdom, Powers, Hershey, Le Roux, Atlas, "Full-Capacity Unitary Recurrent Neural Networks", 2016,
    arXiv:1611.00035.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        nonlinearity: "modrelu", as in the paper, or any other nonlinearity of `kru.KRU`.
        learn_initial: whether h_0 is learned, as in the authors' program, or zero.
        train_recurrent: False keeps the recurrent matrix as it was drawn.
        input_scale, initial_bias: see `kru.KRU`.

    >>> import torch, kru
    >>> rnn = kru.baselines.FCURNN(10, 16)
    >>> optimizer = kru.optimizer(rnn, lr=0.01)
    >>> for _ in range(10):
    ...     rnn(torch.randint(10, (50, 4)))[0].sum().backward()
    ...     optimizer.step()
    >>> kru.spectrum(rnn).distance_from_unitary < 1e-5
    True
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
            matrix=FullUnitaryMatrix,
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
