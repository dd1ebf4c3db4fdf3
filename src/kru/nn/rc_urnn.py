"""The restricted-capacity unitary evolution RNN."""

from typing import Any

from kru.matrices import RestrictedUnitaryMatrix
from kru.nn.baseline import Baseline


class RCURNN(Baseline):
    """h_t = modReLU(W h_{t-1} + U x_t) with W = D_3 R_2 F^-1 D_2 P R_1 F D_1 in C^{N x N}, and a learned h_0.

    W has 7N real parameters and is unitary at all times, see `kru.matrices.RestrictedUnitaryMatrix`. A layer has
    N(2D + 10) parameters: 7N of W, 2ND of U, N of modReLU's b and 2N of h_0.

    Source: Arjovsky, Shah, Bengio, "Unitary Evolution Recurrent Neural Networks", 2016, arXiv:1511.06464.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, train_recurrent: see
            `kru.nn.baseline.Baseline`.
        nonlinearity: "modrelu", that of the paper, or another one of `kru.KRU`.
        learn_initial: whether h_0 is learned, as in the paper, or zero.

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
        *arguments: Any,
        nonlinearity: str = "modrelu",
        learn_initial: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            *arguments,
            matrix=RestrictedUnitaryMatrix,
            field="complex",
            nonlinearity=nonlinearity,
            learn_initial=learn_initial,
            **options,
        )
