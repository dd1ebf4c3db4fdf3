"""The LSTM with Kronecker recurrent matrices."""

from torch import Tensor

from kru.nn.gated import Gated
from kru.ops.scan.cells import CELLS


class KRULSTM(Gated):
    """The LSTM, each of its four recurrent matrices a Kronecker product W = W_0 ⊗ ... ⊗ W_{F-1}::

        i, f, o = sigmoid(W^i h_{t-1} + U^i x_t + b^i), ...     g = tanh(W^g h_{t-1} + U^g x_t + b^g)
        c_t = f c_{t-1} + i g                                   h_t = o tanh(c_t)

    It is used like `torch.nn.LSTM`. There is one bias vector per gate instead of two, and the bias of the forget gate
    is initialised to one. With a single factor of size N it computes the same as `torch.nn.LSTM`.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`.
        factors: sizes of the factors, [128, 16], or pairs (rows, columns), with product N; None for the prime
            factors of N.
        field: "real" is the only choice: gates are real.
        constraint, recurrent_init, train_recurrent, rank, recurrent_gain, input_scale: see `kru.KRU`.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); a state is a pair (h, c), each
        (layers * directions, B, N). `weight_ih_l0` (4N, D) and `bias_l0` (4N,) have the gates in the order i,
        f, g, o.

    >>> import torch, kru
    >>> rnn = kru.KRULSTM(26, 2048, factors=[128, 16])
    >>> output, (h, c) = rnn(torch.randn(5, 2, 26))
    >>> output.shape, c.shape
    (torch.Size([5, 2, 2048]), torch.Size([1, 2, 2048]))
    """

    cell = "lstm"
    gates = CELLS["lstm"].gates
    states = CELLS["lstm"].states

    def _reset_bias(self, bias: Tensor) -> None:
        bias.zero_()
        bias[self.hidden_size : 2 * self.hidden_size] = 1
