"""From somebody's own module to the parts that can be exported, by following its forward with `torch.fx`."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from torch import fx, nn

from kru.export.recurrences import Layer, is_recurrent
from kru.nn.linear import KroneckerLinear

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu")
SOFTMAXES = ("softmax", "log_softmax")

_SUPPORTED = (
    "an embedding, one recurrent layer, its last step, mean over time or all steps, dropout, linear layers, "
    f"{', '.join(ACTIVATIONS)}, {' and '.join(SOFTMAXES)}"
)
_IDENTITIES = ("contiguous", "float", "clone", "detach", "dropout")
_MODULES = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.GELU: "gelu"}
_SOFTMAX_MODULES = {nn.Softmax: "softmax", nn.LogSoftmax: "log_softmax"}
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.Identity)


@dataclass(frozen=True)
class Parts:
    """What a module is made of, from its input to its output.

    Attributes:
        layer: the recurrent layer.
        embedding: what symbols go through before it.
        pooling: "all", "last" or "mean".
        head: linear layers and names of activations, in the order in which they act.
        batch_first: whether sequences are (B, T, ...) for the module.
    """

    layer: Layer
    embedding: nn.Embedding | None = None
    pooling: str = "all"
    head: tuple[nn.Linear | str, ...] = ()
    batch_first: bool = False


def parts_of(module: nn.Module) -> Parts:
    """The parts of a module.

    Raises:
        TypeError: something in it is not supported; the message names it.
    """
    if is_recurrent(module):
        layer: Any = module
        return Parts(layer, batch_first=layer.batch_first)
    tracer = _Tracer()
    try:
        graph = tracer.trace(module, concrete_args=_defaults(module))
    except Exception as error:  # whatever the forward of somebody else raises for a stand-in of a tensor
        reason = " ".join(str(error).split())[:200]
        raise TypeError(
            f"model: expected a forward that torch.fx can follow, got {type(module).__name__} ({reason})"
        ) from error
    return _Walk(module).parts(graph)


class _Tracer(fx.Tracer):
    """Recurrent layers are single nodes."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return (
            is_recurrent(m)
            or isinstance(m, KroneckerLinear)
            or super().is_leaf_module(m, module_qualified_name)
        )


def _defaults(module: nn.Module) -> dict[str, Any]:
    """The arguments of forward that have a default value keep it, so that `if state is None` can be followed."""
    parameters = inspect.signature(module.forward).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


@dataclass(frozen=True)
class _Value:
    """What is known of a value in the forward.

    Attributes:
        kind: "input", "sequence" (B, T, F), "vector" (B, F), "result" (sequence, state), "states", "h" of all
            layers, or "other".
        batch_first: the layout of an input or a sequence; of an input, relative to that of the module.
        pooling, head: what was done to the states up to here.
    """

    kind: str
    batch_first: bool = True
    pooling: str = "all"
    head: tuple[nn.Linear | str, ...] = ()

    @property
    def time_axis(self) -> int:
        return 1 if self.batch_first else 0

    @property
    def dims(self) -> int:
        return 3 if self.kind == "sequence" else 2

    def then(self, step: nn.Linear | str) -> "_Value":
        return replace(self, head=(*self.head, step))


_OTHER = _Value("other")


class _Walk:
    """Follows the nodes of a graph, with a value for each."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.values: dict[fx.Node, _Value] = {}
        self.layer: Any = None
        self.embedding: nn.Embedding | None = None
        self.batch_first = False

    def parts(self, graph: fx.Graph) -> Parts:
        is_first = True
        for node in graph.nodes:
            if node.op == "placeholder":
                self.values[node] = _Value("input") if is_first else _OTHER
                is_first = False
            elif node.op == "output":
                return self._output(node)
            else:
                self.values[node] = self._value(node)
        raise AssertionError("a graph has an output")

    def _output(self, node: fx.Node) -> Parts:
        result: Any = node.args[0]
        while isinstance(result, tuple | list) and result:
            result = result[0]
        value = self.values[result] if isinstance(result, fx.Node) else _OTHER
        if value.kind == "result":
            value = self._sequence()
        if value.kind not in ("sequence", "vector"):
            if self.layer is None:
                self._refuse("a module without a recurrent layer")
            self._refuse("an output that is not made from the states of the recurrent layer")
        if value.kind == "sequence" and value.batch_first != self.batch_first:
            self._refuse("an output whose layout is not the layout of the input")
        return Parts(self.layer, self.embedding, value.pooling, value.head, self.batch_first)

    def _value(self, node: fx.Node) -> _Value:
        if node.op == "get_attr":
            return _OTHER
        if node.op == "call_module":
            return self._call_module(node)
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if str(name).startswith("_assert"):
            return _OTHER
        value = self._argument(node)
        handled = _FUNCTIONS.get(str(name))
        result = None if handled is None else handled(self, node, value)
        if result is None:
            self._refuse(f"{name} of {_DESCRIBED[value.kind]}")
        return result

    def _argument(self, node: fx.Node) -> _Value:
        first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
        return self.values.get(first, _OTHER) if isinstance(first, fx.Node) else _OTHER

    def _call_module(self, node: fx.Node) -> _Value:
        module: Any = self.module.get_submodule(str(node.target))
        value = self._argument(node)
        shown = f"{type(module).__name__} ({node.target})"
        if is_recurrent(module):
            return self._recurrent(module, value, shown)
        if isinstance(module, nn.Embedding):
            if value.kind != "input" or self.embedding is not None or module.max_norm is not None:
                self._refuse(f"{shown} of something else than the input, or with max_norm")
            self.embedding = module
            return value
        if isinstance(module, _DROPOUTS):
            return value
        if value.kind in ("sequence", "vector"):
            if type(module) in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear):
                return value.then(module)
            if type(module) in _MODULES and getattr(module, "approximate", "none") == "none":
                return value.then(_MODULES[type(module)])
            if type(module) in _SOFTMAX_MODULES and _is_last(module.dim, value):
                return value.then(_SOFTMAX_MODULES[type(module)])
            if isinstance(module, nn.Flatten) and value.kind == "vector" and module.start_dim == 1:
                return value
        self._refuse(f"{shown} of {_DESCRIBED[value.kind]}")

    def _recurrent(self, layer: Any, value: _Value, shown: str) -> _Value:
        if self.layer is not None:
            self._refuse(f"a second recurrent layer, {shown}: use num_layers of the first")
        if value.kind != "input":
            self._refuse(f"{shown} of something else than the input")
        self.layer = layer
        self.batch_first = layer.batch_first == value.batch_first
        return _Value("result")

    def _sequence(self) -> _Value:
        return _Value("sequence", batch_first=self.layer.batch_first)

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"model: {type(self.module).__name__} has {what}; can export {_SUPPORTED}")


_DESCRIBED = {
    "input": "the input",
    "sequence": "a sequence",
    "vector": "a vector",
    "result": "the result of the recurrent layer",
    "states": "the states",
    "h": "the states of all layers",
    "other": "something else",
}


def _is_last(dim: int | None, value: _Value) -> bool:
    return dim in (-1, value.dims - 1)


def _arguments(node: fx.Node, *names: str) -> Iterator[Any]:
    """Arguments after the first, by place or name; None where they are not given."""
    for place, name in enumerate(names, start=1):
        yield node.args[place] if place < len(node.args) else node.kwargs.get(name)


def _getitem(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    index = node.args[1]
    if value.kind == "result":
        if index in (0, -2):
            return walk._sequence()
        return _Value("states" if _has_cell(walk) else "h")
    if value.kind == "states":
        return _Value("h") if index in (0, -2) else _OTHER
    if value.kind == "h":
        index = index[0] if isinstance(index, tuple) and _are_whole(index[1:]) else index
        is_last = not walk.layer.bidirectional and index in (-1, walk.layer.num_layers - 1)
        return _Value("vector", pooling="last") if is_last else None
    if value.kind == "sequence":
        places = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in places:
            dots = places.index(Ellipsis)
            places[dots : dots + 1] = [slice(None)] * (4 - len(places))
        step = places.pop(value.time_axis) if len(places) > value.time_axis else None
        if isinstance(step, int) and step == -1 and _are_whole(places):
            return replace(value, kind="vector", pooling="last")
    return None


def _has_cell(walk: _Walk) -> bool:
    return isinstance(walk.layer, nn.LSTM) or getattr(walk.layer, "cell", "") == "lstm"


def _are_whole(places: Any) -> bool:
    return all(isinstance(place, slice) and place == slice(None) for place in places)


def _select(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    dim, index = _arguments(node, "dim", "index")
    if value.kind == "sequence" and dim in (value.time_axis, value.time_axis - 3) and index == -1:
        return replace(value, kind="vector", pooling="last")
    return None


def _mean(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    dim, keepdim = _arguments(node, "dim", "keepdim")
    [dim] = dim if isinstance(dim, tuple | list) and len(dim) == 1 else [dim]
    if value.kind != "sequence" or keepdim or dim not in (value.time_axis, value.time_axis - 3):
        return None
    if any(isinstance(step, str) for step in value.head):
        walk._refuse("a mean over time behind an activation")
    # A mean and linear maps may change places.
    return replace(value, kind="vector", pooling="mean")


def _transpose(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    one, two = _arguments(node, "dim0", "dim1")
    if value.kind in ("input", "sequence") and sorted([one, two]) == [0, 1]:
        return replace(value, batch_first=not value.batch_first)
    return None


def _permute(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    dims = node.args[1] if len(node.args) == 2 else node.kwargs.get("dims", node.args[1:])
    if value.kind in ("input", "sequence") and tuple(dims) in ((1, 0, 2), (1, 0)):  # type: ignore[arg-type]
        return replace(value, batch_first=not value.batch_first)
    return None


def _squeeze(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    [dim] = _arguments(node, "dim")
    if value.kind == "h" and dim == 0 and walk.layer.num_layers == 1 and not walk.layer.bidirectional:
        return _Value("vector", pooling="last")
    last = value.head[-1] if value.head else None
    is_single = any(isinstance(step, nn.Linear) for step in value.head) and last is not None
    if value.kind in ("sequence", "vector") and is_single and _is_last(dim, value):
        return value  # a single output without its dimension
    return None


def _flatten(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    start, end = _arguments(node, "start_dim", "end_dim")
    return value if value.kind == "vector" and start == 1 and end in (None, 1, -1) else None


def _pass(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
    return value


def _activation(name: str) -> "_Handler":
    def handle(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
        exact = node.kwargs.get("approximate", "none") == "none"
        return value.then(name) if value.kind in ("sequence", "vector") and exact else None

    return handle


def _softmax(name: str) -> "_Handler":
    def handle(walk: _Walk, node: fx.Node, value: _Value) -> _Value | None:
        [dim] = _arguments(node, "dim")
        is_fit = value.kind in ("sequence", "vector") and _is_last(dim, value)
        return value.then(name) if is_fit else None

    return handle


_Handler = Callable[[_Walk, fx.Node, _Value], _Value | None]
_FUNCTIONS: dict[str, _Handler] = {
    "getitem": _getitem,
    "select": _select,
    "mean": _mean,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "permute": _permute,
    "squeeze": _squeeze,
    "flatten": _flatten,
    **{name: _pass for name in _IDENTITIES},
    **{name: _activation(name) for name in ACTIVATIONS},
    **{name: _softmax(name) for name in SOFTMAXES},
}
