"""What the unitary and orthogonal networks of other authors share."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kru.matrices import RecurrentMatrix, StructuredMatrix
from kru.nn.elman import Elman
from kru.ops.chain import runs_native, staged_scan


class Baseline(Elman):
    """h_t = sigma(W h_{t-1} + U x_t), the recurrent matrix W dense and with a parametrisation of its own.

    W is made from its parameters once for each sequence, as one factor for the same time loop as that of
    `kru.KRU`; or, where W is a product of cheap matrices, applied as such, see `kru.matrices.StructuredMatrix`.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. A layer has one bias.
        matrix: makes the recurrent matrix from N, `device` and `dtype`; set by the subclass.
        field: "complex" or "real"; set by the subclass.
        nonlinearity: see `kru.KRU`; each subclass has that of its paper.
        learn_initial: whether the state before the first step is a parameter in place of zeros.
        train_recurrent: False keeps the recurrent matrix as it was drawn.
        input_scale, initial_bias: see `kru.KRU`.

    Shapes:
        as those of `kru.KRU`: a state has S = 2N values in the complex field, N in the real one.
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
        matrix: Callable[..., RecurrentMatrix],
        field: str,
        nonlinearity: str,
        learn_initial: bool,
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
            matrix=partial(matrix, hidden_size, device=device, dtype=dtype),
            field=field,
            nonlinearity=nonlinearity,
            train_recurrent=train_recurrent,
            learn_initial=learn_initial,
            input_scale=input_scale,
            initial_bias=initial_bias,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )

    def _scan(
        self,
        x: Tensor,
        suffix: str,
        reverse: bool,
        start: tuple[Tensor, ...] | None,
        lengths: Tensor | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        matrix = getattr(self, f"recurrent{suffix}")
        # A compiled program may be for any number of rows.
        rows = 8 if torch.compiler.is_compiling() else x.shape[1]
        staged = isinstance(matrix, StructuredMatrix) and matrix.pays(rows)
        if not staged or self.nonlinearity != "modrelu" or not runs_native(x.device, dtype):
            return super()._scan(x, suffix, reverse, start, lengths, dtype)
        bias = getattr(self, f"bias{suffix}")
        states, last = staged_scan(
            x,
            getattr(self, f"weight_ih{suffix}").to(dtype),
            matrix.stages(),
            bias=None if bias is None else bias.to(dtype),
            h0=None if start is None else start[0],
            lengths=lengths,
            reverse=reverse,
        )
        return states, (last,)
