"""What the gated layers share: real gates, one Kronecker matrix for each."""

from collections.abc import Sequence
from functools import partial

import torch

from kru.matrices import kronecker_matrix
from kru.nn.recurrent import Recurrent


class Gated(Recurrent):
    """A recurrent layer with gates, in the real field, with tanh."""

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
        field: str = "real",
        constraint: str = "soft",
        recurrent_init: str = "haar",
        train_recurrent: bool = True,
        rank: int = 1,
        recurrent_gain: float = 1.0,
        input_scale: float = 1.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if field != "real":
            raise ValueError(
                f"field: expected real, got {field!r}: the gates of {type(self).__name__} are real numbers; "
                "kru.KRU has a complex field"
            )
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
                gates=len(self.gates),
                constraint=constraint,
                init=recurrent_init,
                rank=rank,
                gain=recurrent_gain,
                device=device,
                dtype=dtype,
            ),
            field=field,
            nonlinearity="tanh",
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )
