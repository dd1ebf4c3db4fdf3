"""The GRU with Kronecker recurrent matrices."""

from kru.nn.gated import Gated
from kru.ops.scan.cells import CELLS


class KRUGRU(Gated):
    """The GRU, each of its three recurrent matrices a Kronecker product W = W_0 ⊗ ... ⊗ W_{F-1}::

        r, z = sigmoid(W^r h_{t-1} + U^r x_t + b^r), ...
        n = tanh(U^n x_t + b^n + r (W^n h_{t-1} + d))
        h_t = (1 - z) n + z h_{t-1}

    It is used like `torch.nn.GRU`. There is one bias vector per gate; the second one, d, exists only where it is not
    redundant. With a single factor of size N it computes the same as `torch.nn.GRU`.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.GRU`.
        factors: sizes of the factors, [128, 16], or pairs (rows, columns), with product N; None for the prime
            factors of N.
        field: "real" is the only choice: gates are real.
        constraint, recurrent_init, train_recurrent, rank, recurrent_gain, input_scale: see `kru.KRU`.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); state (layers * directions, B, N).
        `weight_ih_l0` (3N, D) and `bias_l0` (3N,) have the gates in the order r, z, n; `recurrent_bias_l0`
        (N,) is d.

    >>> import torch, kru
    >>> rnn = kru.KRUGRU(10, 64, num_layers=2, bidirectional=True)
    >>> output, h = rnn(torch.randn(5, 3, 10))
    >>> output.shape, h.shape
    (torch.Size([5, 3, 128]), torch.Size([4, 3, 64]))
    """

    cell = "gru"
    gates = CELLS["gru"].gates

    def _bias_sizes(self) -> dict[str, int]:
        return {"bias": len(self.gates) * self.hidden_size, "recurrent_bias": self.hidden_size}
