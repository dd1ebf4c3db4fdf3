"""Functions in C for products with a recurrent matrix."""

from dataclasses import dataclass, field
from math import prod

import numpy as np

from kru.export.c_factor import FactorKind, factor_function, offset
from kru.export.c_weights import Weights
from kru.export.int8 import gains, to_int8
from kru.export.network import Array, Recurrence
from kru.export.network import Matrix as Factor


@dataclass(frozen=True)
class Product:
    """A kind of recurrent matrix: a sum of `rank` products of factors, given in the order in which they act.

    In C it is a function of the constants, of x, and of `buffers` to work in; it returns where the result is.
    """

    factors: tuple[FactorKind, ...]
    rank: int

    @property
    def buffers(self) -> tuple[str, ...]:
        """What it works in: a and b by turns, for which b may be x itself; a sum leaves x as it is."""
        return (*("a", "b")[: len(self.factors)], *(("sum",) if self.rank > 1 else ()))

    @property
    def floats(self) -> int:
        """Floats of one term."""
        return sum(kind.floats for kind in self.factors)

    @property
    def integers(self) -> int:
        return sum(kind.integers for kind in self.factors)

    @property
    def sizes(self) -> list[int]:
        """How many values go into each factor, and come out of the last."""
        size = prod(kind.columns for kind in self.factors) * (2 if self.factors[0].is_complex else 1)
        sizes = [size]
        for kind in self.factors:
            sizes.append(sizes[-1] // kind.columns * kind.rows)
        return sizes

    @property
    def width(self) -> int:
        """Values that a buffer must hold: the states, or more between factors that aren't square."""
        return max(self.sizes)


@dataclass(frozen=True)
class StoredProduct:
    """The recurrent matrices of a layer, one for each gate: `array` has their floats, ARRAY_int8 their integers."""

    product: Product
    function: str
    array: str

    def call(self, gate: int, x: str, buffers: tuple[str, ...]) -> str:
        """W x for the matrix of a gate."""
        place = gate * self.product.rank
        arrays = [offset(self.array, place * self.product.floats)]
        if self.product.integers:
            arrays.append(offset(f"{self.array}_int8", place * self.product.integers))
        return f"{self.function}({', '.join([*arrays, x, *buffers[: len(self.product.buffers)]])})"


@dataclass
class Products:
    """The functions that the layers of a model need, each once."""

    factors: dict[FactorKind, str] = field(default_factory=dict)
    functions: dict[Product, str] = field(default_factory=dict)
    """their names"""

    def add(self, recurrence: Recurrence, weights: Weights, name: str) -> StoredProduct:
        """Store the factors of a recurrence."""
        floats: list[Array] = []
        integers = []
        factors: list[FactorKind] = []
        for factor in (factor for gate in recurrence.terms for term in gate for factor in reversed(term)):
            planes, (rows, columns) = _planes(factor), factor.shape
            is_int8 = weights.int8 and gains(planes)
            if is_int8:
                values, scale = to_int8(planes)
                floats.append(scale)
                integers.append(values.reshape(-1))
            else:
                floats.append(planes.reshape(-1))
            factors.append(FactorKind(rows, columns, recurrence.is_complex, is_int8))
        weights.vector(name, np.concatenate(floats))
        if integers:
            weights.vector(f"{name}_int8", np.concatenate(integers))
        for kind in factors:
            self.factors.setdefault(kind, factor_function(kind))
        # The same for every gate and term.
        product = Product(tuple(factors[: len(recurrence.terms[0][0])]), len(recurrence.terms[0]))
        number = f"_{len(self.functions)}" if self.functions else ""
        function = self.functions.setdefault(product, f"recurrent_product{number}")
        return StoredProduct(product, function, name)

    def definitions(self) -> list[str]:
        """All functions, in an order in which C knows what is called."""
        products = [text for product, name in self.functions.items() for text in _definitions(product, name)]
        return [*self.factors.values(), *products]


def _planes(factor: Factor) -> Array:
    """Rows of real numbers: those of the real part, then those of the imaginary part."""
    if np.iscomplexobj(factor):
        factor = np.concatenate([factor.real, factor.imag])
    return np.ascontiguousarray(factor, dtype=np.float32)


def _definitions(product: Product, name: str) -> list[str]:
    if product.rank == 1:
        return [_chain(product, name, product.buffers)]
    term = f"{name}_term"
    *inner, total = product.buffers
    return [_chain(product, term, tuple(inner)), _sum(product, name, term, tuple(inner), total)]


def _head(product: Product, name: str, buffers: tuple[str, ...]) -> str:
    q = "const signed char *q, " if product.integers else ""
    arguments = ", ".join(f"float *{buffer}" for buffer in buffers)
    return f"static const float *{name}(const float *w, {q}const float *x, {arguments})"


def _chain(product: Product, name: str, buffers: tuple[str, ...]) -> str:
    """One Kronecker product."""
    lines, x, floats, integers = [], "x", 0, 0
    planes = 2 if product.factors[0].is_complex else 1
    for index, (kind, size) in enumerate(zip(product.factors, product.sizes, strict=False)):
        y = buffers[index % len(buffers)]
        arrays = [offset("w", floats), *([offset("q", integers)] if kind.is_int8 else [])]
        lines.append(f"    {kind.function}({', '.join([*arrays, x, y])}, {size // planes // kind.columns});")
        x, floats, integers = y, floats + kind.floats, integers + kind.integers
    shapes = " (x) ".join(f"{kind.rows}x{kind.columns}" for kind in reversed(product.factors))
    order = ", the last factor first, from x to a, to b, to a, ..." if len(lines) > 1 else ""
    body = "\n".join([f"    /* {shapes}{order} */", *lines, f"    return {x};"])
    return f"{_head(product, name, buffers)}\n{{\n{body}\n}}"


def _sum(product: Product, name: str, term: str, inner: tuple[str, ...], total: str) -> str:
    """A sum of Kronecker products."""
    size = product.sizes[-1]
    arrays = f"w + r * {product.floats}" + (f", q + r * {product.integers}" if product.integers else "")
    return f"""\
{_head(product, name, product.buffers)}
{{
    for (long i = 0; i < {size}; i++) {{
        {total}[i] = 0.0f;
    }}
    for (long r = 0; r < {product.rank}; r++) {{
        const float *y = {term}({arrays}, x, {", ".join(inner)});
        for (long i = 0; i < {size}; i++) {{
            {total}[i] += y[i];
        }}
    }}
    return {total};
}}"""
