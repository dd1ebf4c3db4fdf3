"""How many parameters a module has, and which of them are recurrent."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from kru.matrices import RecurrentMatrix


class ParameterCount(NamedTuple):
    """Numbers of real parameters; a complex one counts as two."""

    total: int
    recurrent: int


def parameter_count(module: nn.Module) -> ParameterCount:
    """The number of parameters of a module and of its recurrent matrices, including frozen parameters.

    Recurrent matrices are the matrices of this library's layers and `weight_hh` of torch's RNN, LSTM and GRU layers
    and cells.

    >>> import torch, kru
    >>> kru.parameter_count(kru.KRU(10, 128))
    ParameterCount(total=2744, recurrent=56)
    >>> kru.parameter_count(torch.nn.LSTM(10, 128))
    ParameterCount(total=71680, recurrent=65536)
    """
    recurrent = {id(p) for p in (*recurrent_parameters(module), *_torch_recurrent_weights(module))}
    sizes = {id(p): p.numel() * (2 if p.is_complex() else 1) for p in module.parameters()}
    return ParameterCount(sum(sizes.values()), sum(sizes[key] for key in recurrent))


def recurrent_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of all recurrent matrices in a module, each once."""
    seen = set()
    for child in module.modules():
        if isinstance(child, RecurrentMatrix):
            for parameter in child.parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield parameter


def _torch_recurrent_weights(module: nn.Module) -> Iterator[nn.Parameter]:
    for child in module.modules():
        if isinstance(child, nn.RNNBase | nn.RNNCellBase):
            for name, parameter in child.named_parameters(recurse=False):
                if name.startswith("weight_hh"):
                    yield parameter


def input_weights(module: nn.Module) -> Iterator[nn.Parameter]:
    """The input weights of all recurrent layers of this library in a module."""
    for child in module.modules():
        # Not by the layer's class: layers import this room, so this room cannot import layers.
        if any(isinstance(part, RecurrentMatrix) for part in child.children()):
            for name, parameter in child.named_parameters(recurse=False):
                if name.startswith("weight_ih"):
                    yield parameter
