"""What the unitary and orthogonal networks of other authors share."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kru.matrices import ChainMatrix, RecurrentMatrix
from kru.nn.elman import Elman
from kru.ops.chain import chain_scan, runs_native


class Baseline(Elman):
    """h_t = sigma(W h_{t-1} + U x_t), the recurrent matrix W dense and with a parametrisation of its own.

    W is computed from its parameters once per sequence and passed as one factor to the time loop of `kru.KRU`. If W is
    a product of cheap matrices, these are applied one after the other instead, see `kru.matrices.ChainMatrix`.

    A subclass chooses the matrix, the field and the nonlinearity of its paper; `matrix` builds the recurrent matrix
    from N, `device` and `dtype`. All other arguments are as in `kru.KRU`; with `learn_initial` the initial state
    is a parameter instead of zeros.

    Shapes:
        as in `kru.KRU`: a state has S = 2N values in the complex field, N in the real one.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        *,
        matrix: Callable[..., RecurrentMatrix],
        field: str,
        nonlinearity: str,
        learn_initial: bool,
        train_recurrent: bool,
        input_scale: float,
        initial_bias: float,
        proj_size: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
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
        reset: Tensor | None,
        dtype: torch.dtype,
        need_states: bool,
        memory: str,
    ) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        matrix = getattr(self, f"recurrent{suffix}")
        # A compiled program may be for any number of rows.
        rows = 8 if torch.compiler.is_compiling() else x.shape[1]
        by_stages = isinstance(matrix, ChainMatrix) and matrix.pays(rows)
        # The kernel for chains has no resets and keeps all states.
        fits = by_stages and self.nonlinearity == "modrelu" and reset is None and memory == "full"
        if not fits or not runs_native(x.device, dtype):
            return super()._scan(x, suffix, reverse, start, lengths, reset, dtype, need_states, memory)
        bias = getattr(self, f"bias{suffix}")
        states, last = chain_scan(
            x,
            getattr(self, f"weight_ih{suffix}").to(dtype),
            matrix.stages(),
            bias=None if bias is None else bias.to(dtype),
            h0=None if start is None else start[0],
            lengths=lengths,
            reverse=reverse,
        )
        return states, (last,)
