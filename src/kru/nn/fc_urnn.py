"""The full-capacity unitary RNN."""

from typing import Any

from kru.matrices import FullUnitaryMatrix
from kru.nn.baseline import Baseline


class FCURNN(Baseline):
    """h_t = modReLU(W h_{t-1} + U x_t) with any unitary W in C^{N x N}, and a learned h_0.

    The 2N^2 entries of W are parameters, and the optimiser keeps them unitary: train this layer with
    `kru.optimizer`, whose multiplicative Cayley update moves W along the unitary matrices. A layer has
    N(2N + 2D + 3) parameters: 2N^2 of W, 2ND of U, N of modReLU's b and 2N of h_0.

    Source: Wisdom, Powers, Hershey, Le Roux, Atlas, "Full-Capacity Unitary Recurrent Neural Networks", 2016,
    arXiv:1611.00035.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, train_recurrent: see
            `kru.nn.baseline.Baseline`.
        nonlinearity: "modrelu", that of the paper, or another one of `kru.KRU`.
        learn_initial: whether h_0 is learned, as in the authors' program, or zero.

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
        *arguments: Any,
        nonlinearity: str = "modrelu",
        learn_initial: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            *arguments,
            matrix=FullUnitaryMatrix,
            field="complex",
            nonlinearity=nonlinearity,
            learn_initial=learn_initial,
            **options,
        )
