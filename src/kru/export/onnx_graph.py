"""A small builder of ONNX graphs: nodes and constants with readable names, each name once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 18, 8
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING

Dims = Sequence[int | str]


class Graph:
    """Nodes in the order of their making; `scope` begins the names of what is made.

    A graph inside another one (the body of a Scan) shares the constants and the names of the outer one.

    Args:
        reserved: names that the caller gives to inputs and, by `name`, to outputs.
    """

    def __init__(self, *reserved: str, outer: "Graph | None" = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {} if outer is None else outer.constants
        self.scope: str = "" if outer is None else outer.scope
        self._used: set[str] = set(reserved) if outer is None else outer._used

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """A tensor of the model; small arrays of integers are shared by their values."""
        if array.dtype == np.int64:
            name = "_".join(["ints", *map(str, np.atleast_1d(array))]) + ("" if array.ndim else "_scalar")
            if name in self.constants:
                return name
        else:
            name = self.free(name)
        self.constants[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def ints(self, *values: int) -> str:
        """A vector of integers, as the operators take shapes and axes."""
        return self.constant("", np.array(values, dtype=np.int64))

    def op(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, called `name` or, where that is taken, something like it."""
        return self.ops(kind, [name], *inputs, **attributes)[0]

    def ops(self, kind: str, names: Sequence[str], *inputs: str, **attributes: Any) -> list[str]:
        """A node with several outputs."""
        outputs = [self.free(name) for name in names]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=f"{outputs[0]}:{kind}", **attributes))
        return outputs

    def name(self, value: str, name: str) -> None:
        """Give a value the reserved name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"{name}:Identity"))

    def free(self, name: str) -> str:
        wanted = f"{self.scope}{name}"
        unique, count = wanted, 1
        while unique in self._used:
            count += 1
            unique = f"{wanted}_{count}"
        self._used.add(unique)
        return unique

    def body(self, name: str, inputs: dict[str, Dims], outputs: dict[str, Dims]) -> onnx.GraphProto:
        """The nodes as the inside of a Scan; the constants stay outside."""
        return helper.make_graph(self.nodes, name, _values(inputs), _values(outputs))

    def model(
        self,
        name: str,
        description: str,
        inputs: dict[str, Dims],
        outputs: dict[str, Dims],
        *,
        integers: Sequence[str] = (),
        metadata: dict[str, str],
        version: str,
    ) -> onnx.ModelProto:
        """The whole model, checked."""
        graph = helper.make_graph(
            self.nodes,
            name,
            _values(inputs, integers),
            _values(outputs),
            list(self.constants.values()),
            doc_string=description,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="kru",
            producer_version=version,
            doc_string=description,
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model


def _kind(name: str, integers: Sequence[str]) -> int:
    return STRING if name == "label" else INT64 if name in integers else FLOAT


def _values(named: dict[str, Dims], integers: Sequence[str] = ()) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, _kind(name, integers), list(dims)) for name, dims in named.items()
    ]
