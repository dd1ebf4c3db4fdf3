"""The forms in which a sequence comes in, brought to one: time first, batched, with lengths. And back."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

SYMBOL_DTYPES = (torch.int64, torch.int32)
"""The dtypes of symbols."""


class Sequences(NamedTuple):
    """A batch of sequences, time first.

    Attributes:
        x: values (T, B, D) or symbols (T, B).
        lengths: (B,), or None when all sequences have T steps.
        is_batched: whether the batch dimension came with the input.
    """

    x: Tensor
    lengths: Tensor | None
    is_batched: bool


def unpack(input: Tensor | PackedSequence, *, batch_first: bool, name: str) -> Sequences:
    """Any form of input as time first sequences. `name` is the layer's, for the error."""
    if isinstance(input, PackedSequence):
        # Padding restores the order in which the sequences came, in which the caller's states are too.
        padded, lengths = pad_packed_sequence(input)
        return Sequences(padded, lengths.to(padded.device, non_blocking=padded.is_cuda), True)
    if not isinstance(input, Tensor):
        raise TypeError(f"input: expected a tensor or a PackedSequence, got {type(input).__name__}")
    dims = 2 if input.dtype in SYMBOL_DTYPES else 3
    if input.dim() not in (dims - 1, dims):
        what = "integer input (symbols)" if dims == 2 else "input"
        raise ValueError(
            f"{name}: expected {what} to be {dims - 1}-D (unbatched) or {dims}-D (batched), "
            f"got {input.dim()}-D of shape {tuple(input.shape)}"
        )
    if input.dim() < dims:
        return Sequences(input.unsqueeze(1), None, False)
    return Sequences(input.transpose(0, 1) if batch_first else input, None, True)


def with_lengths(sequences: Sequences, lengths: Tensor) -> Sequences:
    """A padded batch with the number of real steps of each sequence."""
    if not sequences.is_batched or sequences.lengths is not None:
        raise ValueError("lengths: expected none for a PackedSequence or without a batch, got some")
    return sequences._replace(lengths=lengths.to(sequences.x.device, non_blocking=sequences.x.is_cuda))


def unpack_reset(reset: Tensor, sequences: Sequences, *, batch_first: bool) -> Tensor:
    """A mask in the form of the input, without features, as (T, B)."""
    if not isinstance(reset, Tensor):
        raise TypeError(f"reset: expected a tensor, got {type(reset).__name__}")
    if reset.dtype is not torch.bool:
        raise TypeError(f"reset: expected a mask of dtype torch.bool, got {reset.dtype}")
    steps, batch = sequences.x.shape[:2]
    shape = ((batch, steps) if batch_first else (steps, batch)) if sequences.is_batched else (steps,)
    if tuple(reset.shape) != shape:
        raise ValueError(f"reset: expected shape {shape}, got {tuple(reset.shape)}")
    if not sequences.is_batched:
        reset = reset.unsqueeze(1)
    elif batch_first:
        reset = reset.transpose(0, 1)
    return reset.to(sequences.x.device)


def repack(
    output: Tensor, like: Tensor | PackedSequence, sequences: Sequences, *, batch_first: bool
) -> Tensor | PackedSequence:
    """Outputs (T, B, S) in the form of the input `like`."""
    if isinstance(like, PackedSequence):
        assert sequences.lengths is not None
        lengths = sequences.lengths
        if like.sorted_indices is not None:
            output = output.index_select(1, like.sorted_indices)
            lengths = lengths.index_select(0, like.sorted_indices)
        packed = pack_padded_sequence(output, lengths.cpu())
        return PackedSequence(packed.data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)
    if not sequences.is_batched:
        return output.squeeze(1)
    return output.transpose(0, 1) if batch_first else output
