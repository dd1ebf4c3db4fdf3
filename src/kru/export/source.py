"""From a trained module to the network that is exported, or one line that says why not."""

import copy
from collections.abc import Sequence as Values
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, TypedDict, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from kru.export.network import Affine, Network, Scaling, Sound
from kru.export.recurrences import as_array, is_recurrent, recurrences
from kru.export.torch_modules import Sequence
from kru.export.tracing import parts_of
from kru.sound import SoundFeatures

POOLINGS = ("all", "last", "mean", "moments")

Numbers = Values[float] | np.ndarray[Any, Any] | Tensor


class Around(TypedDict, total=False):
    """The fields of `Exportable` beside the module, as keyword arguments of every exporter."""

    origin: str
    symbols: bool
    embedding: nn.Embedding | None
    output: nn.Linear | None
    below: Values[nn.Module]
    reads_input: bool
    pooling: str
    sound: SoundFeatures | None
    scaling: tuple[Numbers, Numbers] | None
    differences: Numbers | None
    mask: bool
    target_scaling: tuple[Numbers, Numbers] | None
    labels: Values[object] | None
    probabilities: bool
    vocabulary: Values[int | str] | None


@dataclass(frozen=True)
class Exportable:
    """A trained module, and what is around it: raw values go in, and a label comes out.

    Attributes:
        module: a recurrent layer of this library or of torch, or a module of one's own: an embedding, a recurrent
            layer, its last step, mean over time or all steps, dropout, linear layers with activations.
        origin: where the model comes from, for people; the name of its class if empty.
        symbols: whether a module without an embedding takes integers.
        embedding, output: the maps around a module that is only a layer.
        below: recurrent layers under a module that is only a layer, the first one first: each reads the states of the
            one before it, and the output reads the states of all.
        reads_input: whether the output of a module that is only a layer reads what the first layer reads as well.
        pooling: what the output of a module that is only a layer reads: "all" steps, the "last" one, the "mean" over
            time or "moments", mean and standard deviation.
        sound: features that are computed of samples; x below are then the features of each channel in turn.
        scaling: (mean, scale), D numbers each: the module sees (x - mean) / scale.
        differences: D numbers: beside the D scaled values the module sees the D changes of x since the step before,
            divided by these; 0 at the first step. Requires `scaling`.
        mask: whether the module sees D more values, 1 where x is NaN and 0 elsewhere; a NaN then counts as the mean,
            and as no change. Requires `scaling`.
        target_scaling: (mean, scale), C numbers each: the output is y * scale + mean.
        labels: the names of the C outputs; for a single output two names, of its lower and upper side.
        probabilities: whether outputs go through softmax, or a single one through sigmoid, if the module has not
            done so.
        vocabulary: what the symbols of the input stand for, in the order of their numbers, for a file beside the
            program.
    """

    module: nn.Module
    origin: str = ""
    symbols: bool = False
    embedding: nn.Embedding | None = None
    output: nn.Linear | None = None
    below: Values[nn.Module] = ()
    reads_input: bool = False
    pooling: str = "all"
    sound: SoundFeatures | None = None
    scaling: tuple[Numbers, Numbers] | None = None
    differences: Numbers | None = None
    mask: bool = False
    target_scaling: tuple[Numbers, Numbers] | None = None
    labels: Values[object] | None = None
    probabilities: bool = False
    vocabulary: Values[int | str] | None = None


@runtime_checkable
class Exports(Protocol):
    """What knows how it is exported, such as an estimator."""

    def exportable(self) -> Exportable: ...


Source = nn.Module | Exportable | Exports


def network_from(source: Source, around: Around | None = None) -> Network:
    """The network of a module as float32 arrays, checked against the module over a few steps."""
    if isinstance(source, nn.Module):
        source = Exportable(source)
    elif isinstance(source, Exports):
        source = source.exportable()
    if not isinstance(source, Exportable):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(source).__name__}")
    source = replace(source, **(around or {}))
    is_layer = is_recurrent(source.module)
    for name, part, kind in (
        ("embedding", source.embedding, nn.Embedding),
        ("output", source.output, nn.Linear),
    ):
        if part is not None and type(part) is not kind:
            raise TypeError(f"{name}: expected torch.nn.{kind.__name__}, got {type(part).__name__}")
        if part is not None and not is_layer:
            raise ValueError(f"{name}: expected none for a model, which has its own maps; pass its layer")
    if source.pooling not in POOLINGS:
        raise ValueError(f"pooling: expected one of {', '.join(POOLINGS)}, got {source.pooling!r}")
    if not is_layer and (source.below or source.reads_input or source.pooling != "all"):
        raise ValueError(
            "below, reads_input, pooling: expected none for a model, which has its own; pass its layer"
        )
    for layer in source.below:
        if not is_recurrent(layer):
            raise TypeError(f"below: expected recurrent layers, got {type(layer).__name__}")
    # A copy: in float32, on the CPU, without dropout.
    module = _plain(source.module)
    below: list[Any] = [_plain(layer) for layer in source.below]
    parts = parts_of(module)
    if is_layer and source.output is not None:
        parts = replace(parts, head=(source.output,))
    if is_layer:
        parts = replace(parts, pooling=source.pooling)
    embedding = source.embedding or parts.embedding
    network = Network(
        source.origin or type(source.module).__name__,
        sum((recurrences(layer) for layer in [*below, parts.layer]), ()),
        source.symbols or embedding is not None,
        parts.batch_first,
        None if embedding is None else as_array("embedding.weight", embedding.weight),
        all_layers=bool(below),
        reads_input=source.reads_input,
        pooling=parts.pooling,
        head=tuple(step if isinstance(step, str) else _affine(step) for step in parts.head),
    )
    if network.reads_input and network.symbols:
        raise ValueError("reads_input: expected False for a model of symbols, got True")
    _check_sizes(network, [*below, parts.layer])
    _check_values(network, module, below, source)
    return _with_surroundings(network, source)


def _with_surroundings(network: Network, source: Exportable) -> Network:
    outputs, head = network.output_size, network.head
    if source.sound is not None and network.symbols:
        raise ValueError("sound: expected none for a model of symbols")
    if source.scaling is not None:
        if network.symbols:
            raise ValueError("scaling: expected none for a model of symbols")
        parts = 1 + (source.differences is not None) + source.mask
        if network.input_size % parts:
            raise ValueError(
                f"scaling: expected a module that reads {parts} values for each input, got {network.input_size}"
            )
        size = network.input_size // parts
        mean, scale = _scaling("scaling", source.scaling, size)
        change = None
        if source.differences is not None:
            _, change = _scaling("differences", (mean, source.differences), size)
        network = replace(network, scaling=Scaling(mean, scale, change, source.mask))
    elif source.differences is not None or source.mask:
        raise ValueError("scaling: expected (mean, scale) where there are differences or a mask, got none")
    if source.sound is not None:
        network = replace(network, sound=_sound(source.sound, network))
    if source.target_scaling is not None:
        mean, scale = _scaling("target_scaling", source.target_scaling, outputs)
        head = (*head, Affine(np.diag(scale), mean))
        if len(head) > 1 and isinstance(head[-2], Affine):
            bias = 0 if head[-2].bias is None else head[-2].bias
            merged = Affine(head[-2].weight * scale[:, None], np.asarray(bias * scale + mean, np.float32))
            head = (*head[:-2], merged)
    if source.probabilities and "softmax" not in head[-1:] and "sigmoid" not in head[-1:]:
        # The softmax of a log_softmax is that of its input.
        head = (*(head[:-1] if "log_softmax" in head[-1:] else head), "softmax" if outputs > 1 else "sigmoid")
    labels = tuple(map(str, source.labels)) if source.labels is not None else ()
    expected = outputs if outputs > 1 else 2
    if source.labels is not None and len(labels) != expected:
        raise ValueError(f"labels: expected {expected} for {outputs} outputs, got {len(labels)}")
    vocabulary = tuple(source.vocabulary or ())
    if vocabulary and not (network.symbols and len(vocabulary) <= network.input_size):
        raise ValueError(
            f"vocabulary: expected at most {network.input_size} symbols of a model that takes symbols"
        )
    return replace(network, head=head, labels=labels, vocabulary=vocabulary)


def _sound(features: SoundFeatures, network: Network) -> Sound:
    if not isinstance(features, SoundFeatures):
        raise TypeError(f"sound: expected kru.sound.SoundFeatures, got {type(features).__name__}")
    if network.scaling is not None and network.scaling.mask:
        raise ValueError("sound: expected mask=False, got True: features have no missing values")
    channels, rest = divmod(network.input_size, features.size)
    if rest:
        raise ValueError(
            f"sound: expected a module that reads {features.size} features for each channel, got one that reads "
            f"{network.input_size} values"
        )
    return Sound(features, channels)


def _scaling(name: str, pair: Any, size: int) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name}: expected (mean, scale), got {type(pair).__name__}")
    mean, scale = (as_array(name, torch.as_tensor(part, dtype=torch.float32)) for part in pair)
    if mean.shape != (size,) or scale.shape != (size,) or not (scale > 0).all():
        raise ValueError(f"{name}: expected {size} numbers each, the scale above 0")
    return mean, scale


def _affine(linear: nn.Linear) -> Affine:
    bias = None if linear.bias is None else as_array("output.bias", linear.bias)
    return Affine(as_array("output.weight", linear.weight), bias)


def _plain(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).to("cpu", torch.float32).eval()


def _check_sizes(network: Network, layers: list[Any]) -> None:
    first = layers[0].input_size
    if network.embedding is not None and network.embedding.shape[1] != first:
        raise ValueError(f"embedding: expected input_size={first} columns, got {network.embedding.shape[1]}")
    if len({recurrence.state_size for layer in network.layers for recurrence in layer}) > 1:
        raise ValueError("below: expected layers of one size, got several")
    for lower, upper in pairwise(layers):
        if lower.output_size != upper.input_size or lower.batch_first != upper.batch_first:
            raise ValueError(
                f"below: expected layers of one layout, each with the outputs of the one before it as inputs, got "
                f"{lower.output_size} outputs before {upper.input_size} inputs"
            )
    size = network.read_size
    for step in network.head:
        if isinstance(step, Affine):
            if step.weight.shape[1] != size:
                raise ValueError(f"output: expected output_size={size} inputs, got {step.weight.shape[1]}")
            size = int(step.weight.shape[0])


@torch.no_grad()
def _check_values(network: Network, module: nn.Module, below: list[nn.Module], source: Exportable) -> None:
    """Compare the network with the module over a few steps, so that nothing the module computes is lost unnoticed."""
    steps, batch = 3, 2
    generator = torch.Generator().manual_seed(0)
    if network.symbols:
        x = inputs = torch.randint(network.input_size, (steps, batch), generator=generator)
    else:
        x = inputs = torch.randn(steps, batch, network.input_size, generator=generator)
    if network.batch_first:
        x = inputs = x.transpose(0, 1)
    if source.embedding is not None and network.embedding is not None:
        inputs = torch.from_numpy(network.embedding)[x]
    outputs: list[Tensor] = []
    for layer in [*below, module]:
        result = layer(outputs[-1] if outputs else inputs)
        while isinstance(result, tuple | list):
            result = result[0]
        outputs.append(result)
    expected = torch.cat([*outputs, *([inputs] if source.reads_input else [])], dim=-1)
    time = 1 if network.batch_first else 0
    if source.pooling == "last":
        expected = expected.select(time, -1)
    elif source.pooling in ("mean", "moments"):
        mean = expected.mean(time)
        spread = expected.std(time, correction=0)
        expected = mean if source.pooling == "mean" else torch.cat([mean, spread], dim=-1)
    if source.output is not None:
        expected = _plain(source.output)(expected)
    actual = Sequence(network)(x)[0]
    is_same = actual.numel() == expected.numel()
    error = (actual.reshape(expected.shape) - expected).abs().max() if is_same else torch.inf
    if not error <= 1e-4 * max(1.0, float(expected.abs().max())):
        raise TypeError(f"model: {type(module).__name__} computes something that can't be exported")
