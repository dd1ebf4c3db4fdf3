"""The inputs that matrices meet when a model runs on sample data, as second moments."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kru.nn.recurrent import Recurrent

RIDGE = 1e-3
"""Part of the mean square that is added in every direction: few samples don't show all that may come."""

Moments = dict[tuple[nn.Module, str], Tensor]
"""For a layer and the suffix of one of its recurrent matrices ("" for a linear map): E x x^H."""


@torch.no_grad()
def input_moments(model: nn.Module, layers: Iterable[nn.Module], data: Iterable[Any]) -> Moments:
    """E x x^H of what each matrix of these layers is applied to, when the model runs on the data.

    Args:
        model: run once for each entry of the data, in evaluation mode: `model(entry)`, `model(*entry)` for a tuple or
            list, `model(**entry)` for a dict.
        layers: recurrent layers of this library and linear ones, within the model.
    """
    if isinstance(data, Tensor) or not isinstance(data, Iterable):
        raise TypeError(f"data: expected batches, such as a list of tensors, got {type(data).__name__}")
    sums: Moments = {}

    def record(layer: nn.Module, suffix: str, inputs: Tensor) -> None:
        flat = inputs.reshape(-1, inputs.shape[-1])
        flat = flat.to(torch.complex128 if flat.is_complex() else torch.float64)
        sums[layer, suffix] = sums.get((layer, suffix), 0) + flat.mT @ flat.conj()

    training = model.training
    model.eval()
    with ExitStack() as stack:
        for layer in layers:
            if isinstance(layer, Recurrent):
                stack.enter_context(_watched_layer(layer, record))
            else:
                stack.enter_context(_watched_linear(layer, record))
        stack.callback(model.train, training)
        count = 0
        for entry in data:
            _call(model, entry)
            count += 1
    if not count:
        raise ValueError("data: expected at least one batch, got none")
    if not all(total.isfinite().all() for total in sums.values()):
        raise ValueError(
            "data: expected inputs on which all states are finite, got some on which they are not"
        )
    if not all(total.any() for total in sums.values()):
        raise ValueError("data: expected inputs on which some states are not 0, got a layer that sees none")
    return {key: _with_ridge(total) for key, total in sums.items()}


def _call(model: nn.Module, entry: Any) -> None:
    try:
        if isinstance(entry, Mapping):
            model(**entry)
        elif isinstance(entry, tuple | list):
            model(*entry)
        else:
            model(entry)
    except TypeError as error:
        raise TypeError(
            f"data: expected batches that are what {type(model).__name__} takes (a tuple or list has several "
            f"arguments, a dict named ones; leave out targets), got {_described(entry)}: {error}"
        ) from error


def _described(entry: Any) -> str:
    """
    >>> _described([torch.zeros(2), "a"]), _described({"x": 1})
    ('list (Tensor, str)', 'dict (x: int)')
    """
    kind = type(entry).__name__
    if isinstance(entry, Mapping):
        return f"{kind} ({', '.join(f'{key}: {type(value).__name__}' for key, value in entry.items())})"
    if isinstance(entry, tuple | list):
        return f"{kind} ({', '.join(type(value).__name__ for value in entry)})"
    return kind


def _with_ridge(moments: Tensor) -> Tensor:
    size = len(moments)
    mean = moments.diagonal().real.mean()
    return moments + RIDGE * mean * torch.eye(size, dtype=moments.dtype, device=moments.device)


Record = Callable[[nn.Module, str, Tensor], None]


@contextmanager
def _watched_linear(layer: nn.Module, record: Record) -> Iterator[None]:
    handle = layer.register_forward_pre_hook(lambda module, inputs: record(module, "", inputs[0]))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _watched_layer(layer: Recurrent, record: Record) -> Iterator[None]:
    """A recurrent matrix meets the states but each sequence's last, which makes no difference worth its trouble."""
    original = layer._scan

    def scan(x: Tensor, suffix: str, *arguments: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        *rest, _, memory = arguments
        with_states: list[Any] = [*rest, True, memory]
        states, last = original(x, suffix, *with_states)
        assert states is not None
        # Beyond a sequence's end the states are zero, which adds nothing.
        record(layer, suffix, torch.complex(*states.chunk(2, -1)) if layer.field == "complex" else states)
        return states, last

    layer._scan = scan  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del layer._scan
