"""From a trained module to the network that is exported, or one line that says why not."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kru.export.network import Affine, Array, Matrix, Network, Recurrence
from kru.export.torch_modules import Sequence
from kru.nn.recurrent import Recurrent
from kru.ops.kron.reference import terms_of

CELLS = ("elman", "lstm", "gru")
NONLINEARITIES = ("modrelu", "tanh", "relu", "leaky_relu", "identity")


def network_from(
    source: nn.Module,
    *,
    origin: str = "",
    symbols: bool = False,
    embedding: nn.Embedding | None = None,
    output: nn.Linear | None = None,
) -> Network:
    """The network of a module as float32 arrays.

    Args:
        source: a recurrent layer, or a module that has one as `layer`, a `torch.nn.Linear` as `output`, and
            `last_only`, which says whether `output` reads the last state or all of them.
        origin: where the model comes from, for people; the name of its class if empty.
        symbols: whether the input is integers.
        embedding: a map of symbols to the inputs of a layer.
        output: a map of the states of a layer.
    """
    is_layer = isinstance(source, Recurrent)
    if not is_layer and not _is_model(source):
        raise TypeError(
            "model: expected a recurrent layer such as kru.KRU, or a module made of one and a linear output, "
            f"got {type(source).__name__}; the parts around a layer are the arguments embedding and output"
        )
    for name, part, kind in (("embedding", embedding, nn.Embedding), ("output", output, nn.Linear)):
        if part is not None and type(part) is not kind:
            raise TypeError(f"{name}: expected torch.nn.{kind.__name__}, got {type(part).__name__}")
        if part is not None and not is_layer:
            raise ValueError(f"{name}: expected none for a model, which has its own maps; pass model.layer")
    # A copy: in float32, on the CPU, without dropout.
    module: Any = copy.deepcopy(source).to("cpu", torch.float32).eval()
    layer, output = (module, output) if is_layer else (module.layer, module.output)
    network = Network(
        origin or type(source).__name__,
        tuple(_layer(layer, index) for index in range(layer.num_layers)),
        symbols or embedding is not None,
        None if embedding is None else _array("embedding.weight", embedding.weight),
        None if output is None else _affine(output),
        not is_layer and module.last_only,
        layer.batch_first,
    )
    _check_sizes(network, layer)
    _check_values(network, layer)
    return network


def _is_model(module: Any) -> bool:
    return (
        isinstance(module, nn.Module)
        and isinstance(getattr(module, "layer", None), Recurrent)
        and isinstance(getattr(module, "output", None), nn.Linear)
        and isinstance(getattr(module, "last_only", None), bool)
    )


def _layer(layer: Recurrent, index: int) -> tuple[Recurrence, ...]:
    if layer.cell not in CELLS:
        raise TypeError(f"cell: can export {', '.join(CELLS)}, got {layer.cell!r}")
    if layer.nonlinearity not in NONLINEARITIES:
        raise TypeError(f"nonlinearity: can export {', '.join(NONLINEARITIES)}, got {layer.nonlinearity!r}")
    return tuple(
        _recurrence(layer, index, bool(reverse)) for reverse in range(2 if layer.bidirectional else 1)
    )


def _recurrence(layer: Recurrent, index: int, reverse: bool) -> Recurrence:
    suffix = f"_l{index}{'_reverse' if reverse else ''}"

    def array(name: str) -> Array | None:
        tensor = getattr(layer, name + suffix, None)
        return None if tensor is None else _array(name + suffix, tensor)

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
    )


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
        tuple(_array(f"factor {f} of {name}", factor) for f, factor in enumerate(term))
        for term in terms_of(factors)
    )


def _affine(linear: nn.Linear) -> Affine:
    bias = None if linear.bias is None else _array("output.bias", linear.bias)
    return Affine(_array("output.weight", linear.weight), bias)


def _array(name: str, tensor: Tensor) -> Any:
    array = tensor.detach().to("cpu", torch.complex64 if tensor.is_complex() else torch.float32).numpy()
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got {int((~np.isfinite(array)).sum())} others")
    return np.ascontiguousarray(array)


def _check_sizes(network: Network, layer: Recurrent) -> None:
    if network.embedding is not None and network.embedding.shape[1] != layer.input_size:
        raise ValueError(
            f"embedding: expected input_size={layer.input_size} columns, got {network.embedding.shape[1]}"
        )
    if network.output is not None and network.output.weight.shape[1] != layer.output_size:
        raise ValueError(
            f"output: expected output_size={layer.output_size} inputs, got {network.output.weight.shape[1]}"
        )


@torch.no_grad()
def _check_values(network: Network, layer: Recurrent) -> None:
    """Compare the network with the layer over a few steps: whatever else a layer may do, it isn't lost."""
    steps, batch = 3, 2
    generator = torch.Generator().manual_seed(0)
    if network.symbols:
        x = torch.randint(network.input_size, (steps, batch), generator=generator)
        inputs = x if network.embedding is None else torch.from_numpy(network.embedding)[x]
    else:
        x = inputs = torch.randn(steps, batch, network.input_size, generator=generator)
    if network.batch_first:
        x, inputs = x.transpose(0, 1), inputs.transpose(0, 1)
    states, _ = layer(inputs)
    expected = states
    if network.output is not None:
        weight, bias = torch.from_numpy(network.output.weight), network.output.bias
        last = states[-1] if network.last_only else states
        expected = nn.functional.linear(last, weight, None if bias is None else torch.from_numpy(bias))
    error = (Sequence(network)(x)[0] - expected).abs().max()
    if not error <= 1e-4 * max(1.0, float(expected.abs().max())):
        raise TypeError(f"model: {type(layer).__name__} computes something that can't be exported")
