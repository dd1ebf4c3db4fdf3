"""The Kronecker recurrent unit."""

from collections.abc import Sequence
from functools import partial

import torch

from kru.matrices import kronecker_matrix
from kru.nn.elman import Elman


class KRU(Elman):
    """h_t = sigma(W h_{t-1} + U x_t), the recurrent matrix W = W_0 ⊗ ... ⊗ W_{F-1} a Kronecker product.

    The recurrent matrix of N units has sum_f n_f^2 parameters instead of N^2. W is initially unitary. It stays unitary
    with ``constraint="exact"``; otherwise add `kru.unitary_penalty` to the loss to keep it near the unitary matrices.
    The layer is used like `torch.nn.RNN`, except that `nonlinearity` is a keyword argument.

    In the complex field h_t is in C^N, W and U are complex, and everything is stored as real tensors: a state
    and an output have S = 2N features, the N real parts followed by the N imaginary parts; in the real field
    S = N.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        factors: sizes of the factors, [128, 16], or pairs (rows, columns), with product N. None for the
            smallest ones, the prime factors of N; `kru.choose_factors` finds others within a budget.
        field: "complex" or "real".
        nonlinearity: "modrelu" (default), sigma(z) = z/|z| max(|z| + b, 0), whose real b per unit is then the
            only bias; without a bias it is the identity. "tanh", "relu", "leaky_relu" (slope 0.1
            below zero) and "identity" act on real and imaginary parts separately and have an ordinary bias,
            sigma(W h + U x + b).
        constraint: "soft": `kru.unitary_penalty` applies to the factors. "exact": they are unitary (real:
            orthogonal) by construction. "none": neither.
        recurrent_init: "haar" (uniformly random unitary factors), "identity" or "diagonal" (random phases).
        train_recurrent: False keeps the initial recurrent matrix.
        rank: R > 1 makes W a sum of R Kronecker products, with R times the parameters and the cost. `factor_f` of
            `matrix()` then has a leading dimension over the terms.
        recurrent_gain: scale of the initial W; not available with ``constraint="exact"``.
        input_scale: scale of the initial input weights.
        initial_bias: initial bias of modReLU. Below zero, modReLU starts with a threshold; above zero, states
            never vanish.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, S * directions); state (layers * directions, B, S).

    >>> import torch, kru
    >>> rnn = kru.KRU(10, 128, batch_first=True)
    >>> output, h = rnn(torch.randn(4, 50, 10))
    >>> output.shape, h.shape
    (torch.Size([4, 50, 256]), torch.Size([1, 4, 256]))
    >>> output, h = rnn(torch.randint(10, (4, 50)))
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
        factors: Sequence[int | tuple[int, int]] | None = None,
        field: str = "complex",
        nonlinearity: str | None = None,
        constraint: str = "soft",
        recurrent_init: str = "haar",
        train_recurrent: bool = True,
        rank: int = 1,
        recurrent_gain: float = 1.0,
        input_scale: float = 1.0,
        initial_bias: float = 0.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if field not in ("real", "complex"):
            raise ValueError(f"field: expected real or complex, got {field!r}")
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            matrix=partial(
                kronecker_matrix,
                hidden_size,
                factors,
                field=field,
                constraint=constraint,
                init=recurrent_init,
                rank=rank,
                gain=recurrent_gain,
                device=device,
                dtype=dtype,
            ),
            field=field,
            nonlinearity="modrelu" if nonlinearity is None else nonlinearity,
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            initial_bias=initial_bias,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )
