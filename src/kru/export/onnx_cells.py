"""Recurrences as nodes of an ONNX graph, in real tensors."""

from typing import NamedTuple

import numpy as np

from kru.export.network import Array, Matrix, Recurrence, merge_small_factors
from kru.export.onnx_graph import Graph
from kru.ops.scan.cells import LEAK, MODRELU_FLOOR


class FactorConstant(NamedTuple):
    """A factor as a matrix that rows are multiplied with, (Q, P), (G, Q, P) or complex (2Q, 2P)."""

    constant: str
    rows: int
    columns: int


class Cell:
    """The constants of a recurrence in a graph, and the nodes of its step."""

    def __init__(self, graph: Graph, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.terms = _terms(graph, recurrence)
        self.weight = graph.constant("input_weight", recurrence.weight.T)
        self.bias = _optional(graph, "bias", recurrence.bias)
        self.recurrent_bias = _optional(graph, "recurrent_bias", recurrence.recurrent_bias)
        self.leak = _optional(graph, "leak", recurrence.leak)

    def first_states(self, graph: Graph, batch: str) -> list[str]:
        """The states (B, S) before the first step; `batch` is a vector of one number, B."""
        shape = graph.op("Concat", "state_shape", batch, graph.ints(self.recurrence.state_size), axis=0)
        states = [graph.op("ConstantOfShape", f"{state}_first", shape) for state in self.recurrence.states]
        if self.recurrence.initial is not None:
            learned = graph.constant("initial", self.recurrence.initial)
            states[0] = graph.op("Expand", "h_first", learned, shape)
        return states

    def inputs(self, graph: Graph, x: str, *, symbols: bool) -> str:
        """U x + bias for features (..., D) or symbols (...)."""
        if symbols:
            a = graph.op("Gather", "input_part", self.weight, x, axis=0)
        else:
            a = graph.op("MatMul", "input_part", x, self.weight)
        if self.bias and self.recurrence.nonlinearity != "modrelu":
            a = graph.op("Add", "input_part", a, self.bias)
        return a

    def advance(self, graph: Graph, a: str, states: list[str]) -> list[str]:
        """The states (B, S) after a step with input part a (B, G * S)."""
        product = self._product(graph, states[0], self.terms[0])
        for factors in self.terms[1:]:
            product = graph.op("Add", "sum", product, self._product(graph, states[0], factors))
        if self.recurrence.cell == "lstm":
            return self._lstm(graph, graph.op("Add", "gates", a, product), states[1])
        if self.recurrence.cell == "gru":
            return [self._gru(graph, a, product, states[0])]
        new = self._nonlinear(graph, graph.op("Add", "z", a, product))
        if self.leak is None:
            return [new]
        change = graph.op("Sub", "change", new, states[0])
        return [graph.op("Add", "h", states[0], graph.op("Mul", "change", self.leak, change))]

    def _nonlinear(self, graph: Graph, z: str) -> str:
        if self.recurrence.nonlinearity == "modrelu":
            return self._modrelu(graph, z)
        if self.recurrence.nonlinearity == "leaky_relu":
            return graph.op("LeakyRelu", "h", z, alpha=LEAK)
        kind = {"tanh": "Tanh", "relu": "Relu", "identity": "Identity"}[self.recurrence.nonlinearity]
        return graph.op(kind, "h", z)

    def _product(self, graph: Graph, h: str, factors: list[FactorConstant]) -> str:
        """W h for every gate, (B, G * S), of one Kronecker product.

        Each factor, the last one first, acts on the last index and moves it to the front, so that after all
        of them every index is back in its place: y[b, p, m] = sum_q W_f[p, q] x[b, m, q].
        """
        if self.recurrence.is_complex:
            return self._complex_product(graph, h, factors)
        gates = self.recurrence.gates
        x, size = h, self.recurrence.units
        for index, factor in enumerate(factors):
            count = size // factor.columns
            each = () if gates == 1 else (1,) if index == 0 else (gates,)
            if count > 1 or gates > 1:
                x = graph.op("Reshape", "split", x, graph.ints(-1, *each, count, factor.columns))
            x = graph.op("MatMul", "product", x, factor.constant)
            if count > 1:
                x = graph.op("Transpose", "turned", x, perm=[0, 2, 1] if gates == 1 else [0, 1, 3, 2])
            size = count * factor.rows
        return graph.op("Reshape", "recurrent_part", x, graph.ints(-1, gates * size))

    def _complex_product(self, graph: Graph, h: str, factors: list[FactorConstant]) -> str:
        """The same with (real, imaginary) as an index of its own, beside q: (B, m, (part, q))."""
        size, part = self.recurrence.units, 2
        x = h
        first = factors[0].columns
        if first < size:
            x = graph.op("Reshape", "split", x, graph.ints(-1, part, size // first, first))
            x = graph.op("Transpose", "turned", x, perm=[0, 2, 1, 3])
        for index, factor in enumerate(factors):
            count = size // factor.columns
            x = graph.op("Reshape", "rows", x, graph.ints(-1, count, part * factor.columns))
            x = graph.op("MatMul", "product", x, factor.constant)
            size = count * factor.rows
            if index + 1 < len(factors):
                # (m', q', part, p) to (p, m', part, q')
                q = factors[index + 1].columns
                x = graph.op("Reshape", "split", x, graph.ints(-1, count // q, q, part, factor.rows))
                x = graph.op("Transpose", "turned", x, perm=[0, 4, 1, 3, 2])
            elif count > 1:
                x = graph.op("Reshape", "split", x, graph.ints(-1, count, part, factor.rows))
                x = graph.op("Transpose", "turned", x, perm=[0, 2, 3, 1])
        return graph.op("Reshape", "recurrent_part", x, graph.ints(-1, part * size))

    def _modrelu(self, graph: Graph, z: str) -> str:
        """max(|z| + b, 0) z / max(|z|, floor)."""
        units, is_complex = self.recurrence.units, self.recurrence.is_complex
        assert self.bias is not None
        floor = graph.constant("modrelu_floor", np.array(MODRELU_FLOOR, dtype=np.float32))
        if is_complex:
            z = graph.op("Reshape", "z", z, graph.ints(-1, 2, units))
            size = graph.op("ReduceL2", "size", z, graph.ints(1), keepdims=1)
        else:
            size = graph.op("Abs", "size", z)
        above = graph.op("Relu", "above", graph.op("Add", "above", size, self.bias))
        scale = graph.op("Div", "scale", above, graph.op("Max", "size", size, floor))
        h = graph.op("Mul", "h", z, scale)
        return graph.op("Reshape", "h", h, graph.ints(-1, 2 * units)) if is_complex else h

    def _lstm(self, graph: Graph, z: str, c: str) -> list[str]:
        i, f, g, o = graph.ops("Split", ["i", "f", "g", "o"], z, axis=-1, num_outputs=4)
        i, f, o = (graph.op("Sigmoid", name, gate) for name, gate in (("i", i), ("f", f), ("o", o)))
        added = graph.op("Mul", "added", i, graph.op("Tanh", "g", g))
        c = graph.op("Add", "c", graph.op("Mul", "kept", f, c), added)
        return [graph.op("Mul", "h", o, graph.op("Tanh", "c_tanh", c)), c]

    def _gru(self, graph: Graph, a: str, product: str, h: str) -> str:
        size = self.recurrence.units
        split = graph.ints(2 * size, size)
        a_rz, a_n = graph.ops("Split", ["a_rz", "a_n"], a, split, axis=-1)
        w_rz, w_n = graph.ops("Split", ["w_rz", "w_n"], product, split, axis=-1)
        rz = graph.op("Sigmoid", "rz", graph.op("Add", "rz", a_rz, w_rz))
        r, z = graph.ops("Split", ["r", "z"], rz, axis=-1, num_outputs=2)
        if self.recurrent_bias:
            w_n = graph.op("Add", "w_n", w_n, self.recurrent_bias)
        n = graph.op("Tanh", "n", graph.op("Add", "n", a_n, graph.op("Mul", "reset", r, w_n)))
        # (1 - z) n + z h
        return graph.op("Add", "h", n, graph.op("Mul", "kept", z, graph.op("Sub", "change", h, n)))


def _terms(graph: Graph, recurrence: Recurrence) -> list[list[FactorConstant]]:
    """For each term of a sum its factors from the last to the first, small neighbours multiplied out."""
    terms = []
    for term in zip(*recurrence.terms, strict=True):
        gates = [merge_small_factors(factors) for factors in term]
        factors = []
        for f in reversed(range(len(gates[0]))):
            matrices = [_transposed(factors[f]) for factors in gates]
            array = np.stack(matrices) if len(gates) > 1 else matrices[0]
            factors.append(FactorConstant(graph.constant(f"factor_{f}", array), *gates[0][f].shape))
        terms.append(factors)
    return terms


def _transposed(factor: Matrix) -> Array:
    """W^T; for a complex W = A + iB the real matrix [[A, -B], [B, A]]^T."""
    if np.iscomplexobj(factor):
        real, imaginary = factor.real, factor.imag
        factor = np.block([[real, -imaginary], [imaginary, real]])
    return np.ascontiguousarray(factor.T, dtype=np.float32)


def _optional(graph: Graph, name: str, array: Array | None) -> str | None:
    return None if array is None else graph.constant(name, array)
