"""ONNX models of a network: one time step, and whole sequences."""

from collections.abc import Sequence

import numpy as np

import kru
from kru.export.network import Affine, Network
from kru.export.onnx_cells import Cell
from kru.export.onnx_graph import FLOAT, INT64, OPSET, Dims, Graph
from kru.export.onnx_sound import sound_features, sound_windows

__all__ = ["OPSET", "sequence_model", "step_model"]


def step_model(network: Network, name: str) -> bytes:
    """One time step as a serialised model."""
    names = network.first.states
    graph = Graph(
        "input",
        "output",
        "label",
        *names,
        *(f"{state}_next" for state in names),
        *network.carried,
        *(f"{state}_next" for state in network.carried),
    )
    carried: dict[str, Dims] = {state: ("batch", size) for state, size in network.carried.items()}
    x = "input"
    if network.sound is not None:
        x = sound_features(graph, network.sound, graph.op("Transpose", "by_channel", x, perm=[0, 2, 1]))
    earlier = x
    if "before" in carried:
        begun = graph.op("Greater", "begun", "count", graph.constant("none", np.array(0, dtype=np.float32)))
        earlier = graph.op("Where", "earlier", begun, "before", x)
        graph.name(x, "before_next")
    x, symbols = _embed(graph, network, x, earlier)
    first = x
    after: list[list[str]] = []
    for index, [recurrence] in enumerate(network.layers):
        graph.scope = f"layer_{index}/"
        cell = Cell(graph, recurrence)
        row = graph.constant("", np.array(index, dtype=np.int64))
        before = [graph.op("Gather", f"{state}_before", state, row, axis=0) for state in names]
        after.append(cell.advance(graph, cell.inputs(graph, x, symbols=symbols), before))
        x, symbols = after[-1][0], False
    graph.scope = ""
    x = _features(graph, network, first, [states[0] for states in after])
    if carried:
        count = graph.op("Add", "counted", "count", graph.constant("one", np.array(1, dtype=np.float32)))
        graph.name(count, "count_next")
    if "mean" in carried:
        change = graph.op("Sub", "change", x, "mean")
        mean = graph.op("Add", "pooled", "mean", graph.op("Div", "change", change, count))
        graph.name(mean, "mean_next")
        if "squares" in carried:
            added = graph.op("Mul", "squared", change, graph.op("Sub", "rest", x, mean))
            squares = graph.op("Add", "squared", "squares", added)
            graph.name(squares, "squares_next")
            deviation = graph.op("Sqrt", "deviation", graph.op("Div", "variance", squares, count))
            mean = graph.op("Concat", "moments", mean, deviation, axis=-1)
        x = mean
    labels = _read(graph, network, x, ("batch",))
    _stack_states(graph, after, [f"{state}_next" for state in names])
    states = (len(network.layers), "batch", network.first.state_size)
    return _finish(
        graph,
        network,
        f"{name}_step",
        "one time step",
        {"input": _dims(network, "batch", window=True), **{state: states for state in names}, **carried},
        {
            "output": ("batch", network.output_size),
            **{f"{state}_next": states for state in names},
            **{f"{state}_next": dims for state, dims in carried.items()},
            **labels,
        },
    )


def sequence_model(network: Network, name: str) -> bytes:
    """Whole sequences as a serialised model, a Scan for each layer and direction."""
    names = network.first.states
    graph = Graph("input", "output", "label", *(f"{state}_last" for state in names))
    x, symbols = "input", network.symbols
    if network.batch_first:
        x = graph.op("Transpose", "by_time", x, perm=[1, 0] if symbols else [1, 0, 2])
    if network.sound is not None:
        x = sound_features(graph, network.sound, sound_windows(graph, network.sound, x))
    earlier = x
    if network.scaling is not None and network.scaling.change is not None:
        head = graph.op("Slice", "first", x, graph.ints(0), graph.ints(1))
        others = graph.op("Slice", "others", x, graph.ints(0), graph.ints(-1))
        earlier = graph.op("Concat", "earlier", head, others, axis=0)
    x, symbols = _embed(graph, network, x, earlier)
    first, states_of = x, []
    last: list[list[str]] = []
    for index, layer in enumerate(network.layers):
        outputs = []
        for recurrence in layer:
            graph.scope = f"layer_{index}{'_reverse' if recurrence.reverse else ''}/"
            cell = Cell(graph, recurrence)
            *states, output = _scan(graph, cell, cell.inputs(graph, x, symbols=symbols))
            last.append(states)
            outputs.append(output)
        x = outputs[0] if len(outputs) == 1 else graph.op("Concat", "both", *outputs, axis=-1)
        symbols = False
        states_of.append(x)
    graph.scope = ""
    x = _features(graph, network, first, states_of)
    if network.pooling == "mean":
        x = graph.op("ReduceMean", "pooled", x, graph.ints(0), keepdims=0)
    elif network.pooling == "moments":
        mean = graph.op("ReduceMean", "pooled", x, graph.ints(0), keepdims=0)
        rest = graph.op("Sub", "rest", x, mean)
        variance = graph.op(
            "ReduceMean", "variance", graph.op("Mul", "squared", rest, rest), graph.ints(0), keepdims=0
        )
        x = graph.op("Concat", "moments", mean, graph.op("Sqrt", "deviation", variance), axis=-1)
    elif network.last_only:
        x = graph.op("Gather", "last", x, graph.constant("", np.array(-1, dtype=np.int64)), axis=0)
    elif network.batch_first:
        x = graph.op("Transpose", "by_sequence", x, perm=[1, 0, 2])
    leading = ("batch", "steps") if network.batch_first else ("steps", "batch")
    labels = _read(graph, network, x, ("batch",) if network.last_only else leading)
    _stack_states(graph, last, [f"{state}_last" for state in names])
    rows = (len(last), "batch", network.first.state_size)
    return _finish(
        graph,
        network,
        f"{name}_sequence",
        "whole sequences",
        {"input": _dims(network, *leading)},
        {
            "output": (*(("batch",) if network.last_only else leading), network.output_size),
            **{f"{state}_last": rows for state in names},
            **labels,
        },
    )


def _features(graph: Graph, network: Network, first: str, states: list[str]) -> str:
    """What is pooled and read, of the input of the first layer and the states of all layers."""
    parts = states if network.all_layers else states[-1:]
    parts = [*parts, first] if network.reads_input else parts
    return parts[0] if len(parts) == 1 else graph.op("Concat", "features", *parts, axis=-1)


def _scan(graph: Graph, cell: Cell, a: str) -> list[str]:
    """The last states and all outputs (T, B, S) of a cell over input parts a (T, B, G * S)."""
    recurrence = cell.recurrence
    size, names = recurrence.state_size, recurrence.states
    batch = graph.op("Slice", "batch", graph.op("Shape", "shape", a), graph.ints(1), graph.ints(2))
    start = cell.first_states(graph, batch)
    inner = Graph(outer=graph)
    part = inner.free("input_part")
    before = [inner.free(f"{state}_before") for state in names]
    after = cell.advance(inner, part, before)
    output = inner.op("Identity", "output", after[0])
    body = inner.body(
        f"{graph.scope}step",
        {**{state: ("batch", size) for state in before}, part: ("batch", recurrence.gates * size)},
        {state: ("batch", size) for state in [*after, output]},
    )
    direction = [int(recurrence.reverse)]
    return graph.ops(
        "Scan",
        [*(f"{state}_last" for state in names), "states"],
        *start,
        a,
        body=body,
        num_scan_inputs=1,
        scan_input_directions=direction,
        scan_output_directions=direction,
    )


def _embed(graph: Graph, network: Network, x: str, earlier: str) -> tuple[str, bool]:
    """The input of the first layer, and whether it is symbols; `earlier` is x one step before."""
    if network.embedding is not None:
        table = graph.constant("embedding", network.embedding)
        return graph.op("Gather", "embedded", table, x, axis=0), False
    scaling = network.scaling
    if scaling is None:
        return x, network.symbols
    centred = graph.op("Sub", "centred", x, graph.constant("input_mean", scaling.mean))
    parts = [graph.op("Div", "scaled", centred, graph.constant("input_scale", scaling.scale))]
    if scaling.change is not None:
        changed = graph.op("Sub", "changed", x, earlier)
        parts.append(graph.op("Div", "changed", changed, graph.constant("input_change", scaling.change)))
    if scaling.mask:
        zero = graph.constant("nothing", np.array(0, dtype=np.float32))
        parts = [
            graph.op("Where", "present", graph.op("IsNaN", "missing", part), zero, part) for part in parts
        ]
        parts.append(graph.op("Cast", "mask", graph.op("IsNaN", "missing", x), to=FLOAT))
    return (parts[0] if len(parts) == 1 else graph.op("Concat", "read", *parts, axis=-1)), False


def _read(graph: Graph, network: Network, y: str, leading: Sequence[str]) -> dict[str, Dims]:
    """The head; what there is beside `output`."""
    for step in network.head:
        if isinstance(step, Affine):
            y = graph.op("MatMul", "read", y, graph.constant("output_weight", step.weight.T))
            if step.bias is not None:
                y = graph.op("Add", "read", y, graph.constant("output_bias", step.bias))
        elif step == "gelu":
            half, root = (np.array(value, dtype=np.float32) for value in (0.5, 2**-0.5))
            part = graph.op("Erf", "erf", graph.op("Mul", "erf", y, graph.constant("root", root)))
            part = graph.op("Add", "erf", part, graph.constant("one", np.array(1, dtype=np.float32)))
            y = graph.op("Mul", "gelu", graph.op("Mul", "gelu", y, graph.constant("half", half)), part)
        elif step in ("softmax", "log_softmax"):
            y = graph.op("Softmax" if step == "softmax" else "LogSoftmax", step, y, axis=-1)
        else:
            y = graph.op(step.capitalize(), step, y)
    graph.name(y, "output")
    if not network.labels:
        return {}
    if network.output_size > 1:
        index = graph.op("ArgMax", "index", y, axis=-1, keepdims=0)
    else:
        above = graph.constant("threshold", np.array(network.threshold, dtype=np.float32))
        index = graph.op("Cast", "index", graph.op("Greater", "above", y, above), to=INT64)
        index = graph.op("Squeeze", "index", index, graph.ints(-1))
    names = graph.constant("labels", np.array(network.labels, dtype=object))
    graph.name(graph.op("Gather", "named", names, index, axis=0), "label")
    return {"label": tuple(leading)}


def _stack_states(graph: Graph, states: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """States (B, S) of each layer and direction as one tensor (rows, B, S) for each name."""
    for name, rows in zip(names, zip(*states, strict=True), strict=True):
        stacked = [graph.op("Unsqueeze", f"{name}_row", row, graph.ints(0)) for row in rows]
        graph.name(graph.op("Concat", f"{name}_rows", *stacked, axis=0), name)


def _dims(network: Network, *leading: str, window: bool = False) -> Dims:
    if network.sound is not None and window:
        return (*leading, network.sound.features.window, network.sound.channels)
    return leading if network.symbols else (*leading, network.input_size)


def _finish(
    graph: Graph,
    network: Network,
    name: str,
    what: str,
    inputs: dict[str, Dims],
    outputs: dict[str, Dims],
) -> bytes:
    model = graph.model(
        name,
        f"{network.origin}, {what}",
        inputs,
        outputs,
        integers=["input"] if network.symbols else [],
        metadata={"origin": network.origin, "form": what, "cell": network.first.cell},
        version=kru.__version__,
    )
    serialised: bytes = model.SerializeToString()
    return serialised
