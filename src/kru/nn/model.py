"""A recurrent layer and a linear read-out of its states."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from kru.nn.kinds import ModelSettings, build_layer
from kru.nn.recurrent import Recurrent
from kru.nn.states import State

Readout = Literal["last", "mean", "all"]
READOUTS = ("last", "mean", "all")


class SequenceModel(nn.Module):
    """A recurrent layer, which may have several layers and two directions, dropout, and a linear read-out.

    Args:
        layer: maps (T, B, D), or symbols (T, B), to states (T, B, S).
        output_size: C.
        readout: what the linear map reads. "all": every step, outputs (T, B, C). "mean": the mean of the states over
            the real steps, outputs (B, C). "last": the state after the last real step, outputs (B, C); of the
            direction that reads backwards its own last step, which is the first.
        dropout: probability with which an entry of what is read is hidden from the linear map while training. The
            recurrence itself always sees all of it.

    >>> import torch, kru
    >>> model = SequenceModel(kru.KRU(3, 16, bidirectional=True), 5, readout="mean")
    >>> outputs, _ = model(torch.randn(50, 4, 3), lengths=torch.tensor([50, 20, 7, 1]))
    >>> outputs.shape
    torch.Size([4, 5])
    """

    def __init__(
        self, layer: Recurrent, output_size: int, *, readout: Readout = "all", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if readout not in READOUTS:
            raise ValueError(f"readout: expected one of {', '.join(READOUTS)}, got {readout!r}")
        if layer.batch_first:
            raise ValueError("layer: expected one that has time first, got batch_first=True")
        self.layer = layer
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(layer.output_size, output_size)
        self.readout = readout

    def forward(
        self, inputs: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Outputs, and the state after the last step.

        Args:
            inputs: (T, B, D), or symbols (T, B).
            state: the state that an earlier call returned, to continue its sequences; None: the sequences start here.
            lengths: (B,), the real steps of each sequence, from 1 to T; None: all of them. In one direction nothing
                flows back in time, so the layer does not need them, and the returned state is the state after T steps.
                Outputs beyond the end of a sequence are meaningless.
        """
        if self.layer.bidirectional:
            if state is not None:
                raise ValueError(
                    "state: expected none for a model of two directions, which needs whole sequences, got one"
                )
            states, last = self.layer(inputs, lengths=lengths)
        else:
            states, last = self.layer(inputs, state)
        return self.output(self.dropout(self._read(states, lengths))), last

    def _read(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """What the linear map reads: states (T, B, S) or (B, S)."""
        if self.readout == "all":
            return states
        if self.readout == "mean":
            if lengths is None:
                return states.mean(0)
            steps = lengths.to(states.device)
            real = torch.arange(states.shape[0], device=states.device)[:, None] < steps
            # Not a product: beyond the end there may be anything, also a NaN.
            return states.where(real[:, :, None], 0.0).sum(0) / steps[:, None]
        last = states[-1]
        if lengths is not None:
            columns = torch.arange(states.shape[1], device=states.device)
            last = states[lengths.to(states.device) - 1, columns]
        if not self.layer.bidirectional:
            return last
        size = self.layer.output_size // 2
        return torch.cat([last[:, :size], states[0, :, size:]], dim=-1)


class Sizes(NamedTuple):
    """The sizes that a task requires of a model."""

    inputs: int
    outputs: int
    last_only: bool
    """whether there is one output per sequence instead of one per step"""
    symbols: bool = False
    """whether inputs are integers below `inputs`"""


def build_model(config: ModelSettings, sizes: Sizes) -> SequenceModel:
    """A model with initial weights from torch's global generator."""
    asked: Readout = "last" if sizes.last_only else "all"
    readout = asked if config.readout == "task" else config.readout
    if (readout == "all") == sizes.last_only:
        wanted = "last or mean, one output a sequence" if sizes.last_only else "all, one output a step"
        raise ValueError(f"model.readout: expected {wanted}, as the task has it, got {readout}")
    layer = build_layer(config, sizes.inputs)
    model = SequenceModel(layer, sizes.outputs, readout=readout, dropout=config.dropout)
    nn.init.zeros_(model.output.bias)
    nn.init.xavier_uniform_(model.output.weight)
    return model


def seeded_model(config: ModelSettings, sizes: Sizes, seed: int) -> SequenceModel:
    """The initial model of a run with this seed; the global generator is left seeded."""
    torch.manual_seed(seed)
    return build_model(config, sizes)
