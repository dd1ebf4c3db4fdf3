"""`kru.compress`."""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kru.compression.choice import Candidate, candidates, choose
from kru.compression.dense_layers import TORCH_LAYERS, dense_layer
from kru.compression.inputs import Moments, input_moments
from kru.compression.report import CompressedMatrix, CompressionReport
from kru.linalg.factors import Shapes, check_rank, parse_factors
from kru.linalg.nearest import largest_rank, nearest_kronecker
from kru.matrices.factor_pairs import to_stored
from kru.nn import KRU, KRUGRU, KRULSTM, KroneckerLinear
from kru.nn.recurrent import Recurrent
from kru.ops import kron_dense
from kru.optim.parameters import parameter_count

OUR_LAYERS = (KRU, KRULSTM, KRUGRU)


class Compressed(NamedTuple):
    """The module with Kronecker layers instead of dense ones, and a report."""

    module: nn.Module
    report: CompressionReport


def compress(
    module: nn.Module,
    max_parameters: int | None = None,
    factors: Sequence[int | tuple[int, int]] | None = None,
    rank: int | None = None,
    *,
    data: Iterable[Any] | None = None,
    only: Sequence[str] | None = None,
) -> Compressed:
    """Replace the dense matrices of a trained model by the nearest sums of Kronecker products.

    `torch.nn.RNN`, `LSTM` and `GRU` become `kru.KRU`, `KRULSTM` and `KRUGRU` with a sum of Kronecker products for each
    gate's recurrent matrix; the input maps stay. `torch.nn.Linear` becomes `KroneckerLinear`. Recurrent layers of this
    library are compressed too. The module itself is not modified. The result is used in the same way. It is close to
    the original if the errors in the report are small, and a good start for fine-tuning if they are not.

    Args:
        module: one of these layers, or a model with some in it.
        max_parameters: upper limit on the total number of parameters of all compressed matrices. For each layer, two
            factors and their number of terms are chosen so that the errors are small; low rank is one of the choices.
        factors: the factors, instead of `max_parameters`: sizes, or pairs (rows, columns), for all layers with matrices
            of that size. Other layers are kept.
        rank: the number of terms. None: as many as `max_parameters` allows; with `factors` one.
        data: sample inputs of the module, such as some batches of the training data: a tuple or list holds several
            arguments, a dict keyword arguments. The matrices are then fitted on the inputs that occur in the data
            instead of in the Frobenius norm. Which factors are chosen within `max_parameters` does not depend on it.
        only: names of the layers within the module to compress (as in `named_modules()`); None for all.

    Returns:
        the module and a `CompressionReport`, with the error of each matrix.

    >>> import torch, kru
    >>> _ = torch.manual_seed(0)
    >>> lstm, report = kru.compress(torch.nn.LSTM(10, 64), factors=[8, 8], rank=4)
    >>> lstm.matrix()
    KroneckerMatrix(4 x 8x8 ⊗ 8x8, rank=4, field=real, constraint=none)
    >>> report.entries, report.compressed
    (16384, 2048)
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a module, got {type(module).__name__}")
    if (max_parameters is None) == (factors is None):
        given = "neither" if factors is None else "both"
        raise ValueError(f"max_parameters, factors: expected one of them, got {given}")
    if max_parameters is not None and (
        not isinstance(max_parameters, int) or isinstance(max_parameters, bool)
    ):
        raise TypeError(f"max_parameters: expected an integer, got {type(max_parameters).__name__}")
    if rank is not None:
        check_rank(rank)
    if isinstance(only, str):
        raise TypeError(f"only: expected a list of names, got the string {only!r}")
    before = parameter_count(module).total
    module, layers, kept = _found_layers(module, only)
    matrices = {name: _matrices(name, layer) for name, layer in layers.items()}
    if factors is not None:
        chosen = _given_factors(matrices, factors, rank or 1, kept)
    else:
        chosen = _within_budget(matrices, max_parameters or 0, rank, kept)
    if not chosen:
        reasons = "; ".join(f"{name or 'the module'}: {reason}" for name, reason in kept.items())
        raise ValueError(
            f"module: expected a layer that can be compressed, got none ({reasons or 'no dense layer'})"
        )
    moments: Moments = {}
    if data is not None:
        moments = input_moments(module, [layers[name] for name in chosen], data)
    done: list[CompressedMatrix] = []
    for name, (shapes, terms) in chosen.items():
        new, entries = _compressed_layer(name, layers[name], matrices[name], shapes, terms, moments)
        module = _replaced(module, layers[name], new)
        done += entries
    return Compressed(module, CompressionReport(tuple(done), kept, before, parameter_count(module).total))


class _Matrix(NamedTuple):
    """A matrix of a layer: the suffix of its module ("" in a linear layer), its gate, and itself."""

    suffix: str
    gate: str
    w: Tensor


def _found_layers(
    module: nn.Module, only: Sequence[str] | None
) -> tuple[nn.Module, dict[str, nn.Module], dict[str, str]]:
    """A copy with our layers instead of torch's, the layers to compress by name, and the reasons to keep others."""
    module = copy.deepcopy(module)
    names = dict(module.named_modules())
    for name in only or ():
        if name not in names:
            raise ValueError(
                f"only: expected names of layers, got {name!r}; there are {', '.join(map(repr, names))}"
            )
    # Its fast path reads the weights of its linear layers, past their forward.
    encoders = [layer for layer in names.values() if isinstance(layer, nn.TransformerEncoderLayer)]
    read = {id(child) for encoder in encoders for child in encoder.children()}
    owners = Counter(id(p) for child in names.values() for p in child._parameters.values() if p is not None)
    layers: dict[str, nn.Module] = {}
    kept: dict[str, str] = {}
    for name, layer in names.items():
        kind = type(layer)
        if (only is not None and name not in only) or kind not in (*TORCH_LAYERS, nn.Linear, *OUR_LAYERS):
            continue
        if getattr(layer, "proj_size", 0):
            kept[name] = "its states are projected"
        elif kind in OUR_LAYERS and layer.learn_initial:
            kept[name] = "its first state is learned"
        elif any(owners[id(p)] > 1 for p in layer._parameters.values() if p is not None):
            kept[name] = "its weights are shared"
        elif id(layer) in read:
            kept[name] = "nn.TransformerEncoderLayer reads its weights"
        elif isinstance(layer, TORCH_LAYERS):
            layers[name] = dense_layer(layer)
            module = _replaced(module, layer, layers[name])
        else:
            layers[name] = layer
    return module, layers, kept


@torch.no_grad()
def _matrices(name: str, layer: nn.Module) -> list[_Matrix]:
    found = []
    if isinstance(layer, Recurrent):
        for index in range(layer.num_layers):
            for reverse, suffix in enumerate(layer._suffixes(index)):
                matrix = layer.matrix(index, reverse=bool(reverse))
                for g, gate in enumerate(layer.gates):
                    found.append(_Matrix(suffix, gate, kron_dense(matrix.dense_factors(g))))
    else:
        assert isinstance(layer, nn.Linear)
        found.append(_Matrix("", "", layer.weight))
    if not all(matrix.w.isfinite().all() for matrix in found):
        raise ValueError(f"module: expected finite weights, got some in {name or 'it'} that are not")
    return found


def _given_factors(
    matrices: dict[str, list[_Matrix]],
    factors: Sequence[int | tuple[int, int]],
    rank: int,
    kept: dict[str, str],
) -> dict[str, tuple[Shapes, int]]:
    chosen = {}
    for name, own in matrices.items():
        rows, columns = own[0].w.shape
        try:
            shapes = parse_factors(factors, rows, columns, "rows", "columns")
        except ValueError as error:
            kept[name] = str(error)
            continue
        if rank > largest_rank(shapes):
            raise ValueError(
                f"rank: expected at most {largest_rank(shapes)} for {name or 'the module'}, got {rank}"
            )
        chosen[name] = (shapes, rank)
    return chosen


def _within_budget(
    matrices: dict[str, list[_Matrix]], max_parameters: int, rank: int | None, kept: dict[str, str]
) -> dict[str, tuple[Shapes, int]]:
    found: dict[str, list[Candidate]] = {}
    for name, own in matrices.items():
        found[name] = candidates([matrix.w for matrix in own], rank)
        if not found[name]:
            rows, columns = own[0].w.shape
            terms = f" in {rank} terms" if rank is not None and rank > 1 else ""
            kept[name] = f"{rows} x {columns} has no two factors with fewer entries{terms}"
            del found[name]
    if not found:
        return {}
    chosen = choose(list(found.values()), max_parameters)
    return {name: (candidate.shapes, candidate.rank) for name, candidate in zip(found, chosen, strict=True)}


@torch.no_grad()
def _compressed_layer(
    name: str, layer: nn.Module, matrices: list[_Matrix], shapes: Shapes, rank: int, moments: Moments
) -> tuple[nn.Module, list[CompressedMatrix]]:
    new = _empty_layer(layer, shapes, rank)
    report: list[CompressedMatrix] = []
    by_suffix: dict[str, list[list[Tensor]]] = {}
    for suffix, gate, w in matrices:
        found = nearest_kronecker(w, shapes, rank, moments=moments.get((layer, suffix)))
        by_suffix.setdefault(suffix, []).append(found.factors)
        several = isinstance(layer, Recurrent) and len(layer.gates) > 1
        path = ".".join(filter(None, [name, f"recurrent{suffix}" if suffix else "", gate if several else ""]))
        size = w.shape[0], w.shape[1]
        report.append(CompressedMatrix(path or "weight", size, shapes, rank, found.error, w.is_complex()))
    for suffix, gates in by_suffix.items():
        owner: Any = getattr(new, f"recurrent{suffix}") if suffix else new
        for parameter, factors in zip(owner.factor_parameters, zip(*gates, strict=True), strict=True):
            stacked = torch.stack(factors, dim=1 if rank > 1 else 0)  # (R, gates, P, Q)
            parameter.copy_(to_stored(stacked).reshape(parameter.shape))
    return new.train(layer.training), report


def _empty_layer(layer: nn.Module, shapes: Shapes, rank: int) -> nn.Module:
    """The Kronecker layer with all weights of the dense one but its matrices."""
    first = next(layer.parameters())
    if isinstance(layer, nn.Linear):
        new: nn.Module = KroneckerLinear(
            layer.in_features,
            layer.out_features,
            shapes,
            layer.bias is not None,
            rank=rank,
            device=first.device,
            dtype=first.dtype,
        )
    else:
        assert isinstance(layer, Recurrent)
        own = {"field": layer.field, "nonlinearity": layer.nonlinearity} if isinstance(layer, KRU) else {}
        kind: Any = type(layer)
        new = kind(
            layer.input_size,
            layer.hidden_size,
            layer.num_layers,
            layer.bias,
            layer.batch_first,
            layer.dropout,
            layer.bidirectional,
            factors=shapes,
            rank=rank,
            constraint="none",
            train_recurrent=layer.train_recurrent,
            device=first.device,
            dtype=first.dtype,
            **own,
        )
    weights = layer.state_dict()
    for key, tensor in new.state_dict().items():
        if key in weights and not key.startswith("recurrent_l"):
            tensor.copy_(weights[key])
    if not any(parameter.requires_grad for parameter in layer.parameters()):
        new.requires_grad_(False)
    return new


def _replaced(module: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """The module with `new` wherever `old` is."""
    if module is old:
        return new
    for child in module.modules():
        for name, part in child._modules.items():
            if part is old:
                child._modules[name] = new
    return module
