"""The recurrent layers of this library and of torch as plain arrays."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kru.export.network import Array, Matrix, Recurrence
from kru.nn.recurrent import Recurrent
from kru.ops.kron.reference import terms_of
from kru.ops.scan.cells import CELLS, NONLINEARITIES

TORCH_LAYERS = (nn.RNN, nn.LSTM, nn.GRU)

Layer = Recurrent | nn.RNN | nn.LSTM | nn.GRU


def is_recurrent(module: object) -> bool:
    """Whether a module is a recurrent layer that `recurrences` may be able to read."""
    return isinstance(module, Recurrent | nn.RNNBase)


def recurrences(layer: Layer) -> tuple[tuple[Recurrence, ...], ...]:
    """For each layer its recurrences, one or two (the second in reverse)."""
    if isinstance(layer, Recurrent):
        if layer.cell not in CELLS:
            raise TypeError(f"cell: can export {', '.join(CELLS)}, got {layer.cell!r}")
        if layer.nonlinearity not in NONLINEARITIES:
            raise TypeError(
                f"nonlinearity: can export {', '.join(NONLINEARITIES)}, got {layer.nonlinearity!r}"
            )
    elif layer.proj_size:
        raise TypeError(f"proj_size: can export layers without a projection, got {layer.proj_size}")
    read: Any = _recurrence if isinstance(layer, Recurrent) else _torch_recurrence
    return tuple(
        tuple(read(layer, index, bool(reverse)) for reverse in range(2 if layer.bidirectional else 1))
        for index in range(layer.num_layers)
    )


def as_array(name: str, tensor: Tensor) -> Any:
    """A tensor as float32 or complex64; raises unless its numbers are finite."""
    array = tensor.detach().to("cpu", torch.complex64 if tensor.is_complex() else torch.float32).numpy()
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got {int((~np.isfinite(array)).sum())} others")
    return np.ascontiguousarray(array)


def _recurrence(layer: Recurrent, index: int, reverse: bool) -> Recurrence:
    suffix = f"_l{index}{'_reverse' if reverse else ''}"

    def array(name: str) -> Array | None:
        tensor = getattr(layer, name + suffix, None)
        return None if tensor is None else as_array(name + suffix, tensor)

    weight, bias = array("weight_ih"), array("bias")
    assert weight is not None
    # Without a bias modReLU leaves every number as it is.
    nonlinearity = "identity" if layer.nonlinearity == "modrelu" and bias is None else layer.nonlinearity
    return Recurrence(
        layer.cell,
        nonlinearity,
        layer.field == "complex",
        reverse,
        weight,
        tuple(_terms(layer, index, reverse, gate) for gate in range(len(layer.gates))),
        bias,
        array("recurrent_bias"),
        array("initial"),
        _leak(layer),
    )


def _leak(layer: Recurrent) -> Array | None:
    """The leak of each value of the state."""
    leak: Tensor | None = getattr(layer, "leak", None)
    if leak is None:
        return None
    planes = 2 if layer.field == "complex" else 1
    array: Array = as_array("leak", leak.expand(layer.hidden_size).repeat(planes))
    return array


def _terms(layer: Recurrent, index: int, reverse: bool, gate: int) -> tuple[tuple[Matrix, ...], ...]:
    matrix = layer.matrix(index, reverse=reverse)
    name = type(matrix).__name__
    try:
        factors = matrix.dense_factors(gate)
    except NotImplementedError as error:
        raise TypeError(f"recurrent matrix: expected Kronecker factors, got {name} without any") from error
    if {factor.dim() for factor in factors} not in ({2}, {3}):
        raise TypeError(f"recurrent matrix: expected a sum of Kronecker products, got {matrix}")
    sides = [np.prod([factor.shape[side] for factor in factors]) for side in (-2, -1)]
    if sides != [layer.hidden_size] * 2:
        raise TypeError(f"recurrent matrix: expected {layer.hidden_size} rows and columns, got {matrix}")
    return tuple(
        tuple(as_array(f"factor {f} of {name}", factor) for f, factor in enumerate(term))
        for term in terms_of(factors)
    )


def _torch_recurrence(layer: Any, index: int, reverse: bool) -> Recurrence:
    """A layer of torch: its recurrent matrix is one dense factor for each gate."""
    suffix = f"_l{index}{'_reverse' if reverse else ''}"
    weight, recurrent, *biases = (
        as_array(name + suffix, getattr(layer, name + suffix))
        for name in ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if layer.bias else ()))
    )
    units, bias, recurrent_bias = layer.hidden_size, None, None
    if biases:
        bias = biases[0] + biases[1]
        if isinstance(layer, nn.GRU):
            # The reset gate multiplies the second bias of the last gate, so that one stays apart.
            bias[2 * units :] = biases[0][2 * units :]
            recurrent_bias = biases[1][2 * units :]
    return Recurrence(
        "lstm" if isinstance(layer, nn.LSTM) else "gru" if isinstance(layer, nn.GRU) else "elman",
        layer.nonlinearity if isinstance(layer, nn.RNN) else "tanh",
        False,
        reverse,
        weight,
        tuple(((gate,),) for gate in recurrent.reshape(-1, units, units)),
        bias,
        recurrent_bias,
        None,
    )
