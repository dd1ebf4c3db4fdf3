"""Functions in C for products with Kronecker factors."""

from dataclasses import dataclass, field
from math import prod

import numpy as np

from kru.export.c_weights import Weights
from kru.export.int8 import gains, to_int8
from kru.export.network import Array, Recurrence
from kru.export.network import Matrix as Factor

UNROLLED = 8
"""Up to this size a factor's sums are written out."""


@dataclass(frozen=True)
class Stage:
    """A kind of factor: its shape, whether it is complex, and whether its entries are integers."""

    rows: int
    columns: int
    is_complex: bool
    is_int8: bool

    @property
    def function(self) -> str:
        """The name of the function that multiplies with it."""
        field = "complex" if self.is_complex else "real"
        return f"{field}_{self.rows}x{self.columns}{'_int8' if self.is_int8 else ''}"

    @property
    def floats(self) -> int:
        """How many floats it has: its entries, or the scales of its rows."""
        return (2 if self.is_complex else 1) * self.rows * (1 if self.is_int8 else self.columns)

    @property
    def integers(self) -> int:
        return (2 if self.is_complex else 1) * self.rows * self.columns if self.is_int8 else 0


@dataclass
class Products:
    """The functions for products that the layers of a model need, each once."""

    stages: dict[Stage, str] = field(default_factory=dict)
    chains: dict[tuple[Stage, ...], str] = field(default_factory=dict)

    def add(self, recurrence: Recurrence, weights: Weights, name: str) -> "Product":
        """Store the factors of a recurrence, and write what its products need."""
        stages: list[Stage] = []
        floats: list[Array] = []
        integers = []
        for gate, factors in enumerate(recurrence.factors):
            for factor in reversed(factors):
                planes = _planes(factor)
                is_int8 = weights.int8 and gains(planes)
                if is_int8:
                    values, scale = to_int8(planes)
                    floats.append(scale)
                    integers.append(values.reshape(-1))
                else:
                    floats.append(planes.reshape(-1))
                if gate == 0:
                    rows, columns = factor.shape
                    stages.append(Stage(rows, columns, recurrence.is_complex, is_int8))
        weights.vector(name, np.concatenate(floats))
        if integers:
            weights.vector(f"{name}_int8", np.concatenate(integers))
        for stage in stages:
            self.stages.setdefault(stage, _stage_function(stage))
        chain = tuple(stages)
        if chain not in self.chains:
            function = f"recurrent_product{f'_{len(self.chains)}' if self.chains else ''}"
            self.chains[chain] = _chain_function(function, chain)
        function = self.chains[chain].split("(")[0].split("*")[-1]
        return Product(function, name, chain)


@dataclass(frozen=True)
class Product:
    """How C calls for the product with a recurrent matrix."""

    function: str
    array: str
    stages: tuple[Stage, ...]

    @property
    def width(self) -> int:
        """Values that a buffer must hold: the states, or more between factors that aren't square."""
        planes = 2 if self.stages[0].is_complex else 1
        return planes * max(size for pair in _sizes(self.stages) for size in pair)

    def call(self, gate: int, x: str, a: str, b: str) -> str:
        """W x for the matrix of a gate; a and b are buffers (one factor needs no b), and b may be x itself."""
        floats = gate * sum(stage.floats for stage in self.stages)
        integers = gate * sum(stage.integers for stage in self.stages)
        arrays = [_offset(self.array, floats)]
        if any(stage.is_int8 for stage in self.stages):
            arrays.append(_offset(f"{self.array}_int8", integers))
        return f"{self.function}({', '.join([*arrays, x, a, b][: len(arrays) + 1 + self.buffers])})"

    @property
    def buffers(self) -> int:
        """How many buffers a product needs beside x."""
        return min(2, len(self.stages))


def _planes(factor: Factor) -> Array:
    """Rows of real numbers: those of the real part, then those of the imaginary part."""
    if np.iscomplexobj(factor):
        factor = np.concatenate([factor.real, factor.imag])
    return np.ascontiguousarray(factor, dtype=np.float32)


def _sizes(stages: tuple[Stage, ...]) -> list[tuple[int, int]]:
    """How many units go into each stage, and come out."""
    size, sizes = prod(stage.columns for stage in stages), []
    for stage in stages:
        sizes.append((size, size // stage.columns * stage.rows))
        size = sizes[-1][1]
    return sizes


def _chain_function(name: str, stages: tuple[Stage, ...]) -> str:
    is_int8 = any(stage.is_int8 for stage in stages)
    lines, x, targets, floats, integers = [], "x", ("a", "b"), 0, 0
    for index, (stage, (size, _)) in enumerate(zip(stages, _sizes(stages), strict=True)):
        y = targets[index % 2]
        arrays = [_offset("w", floats), *([_offset("q", integers)] if stage.is_int8 else [])]
        lines.append(f"    {stage.function}({', '.join([*arrays, x, y])}, {size // stage.columns});")
        x, floats, integers = y, floats + stage.floats, integers + stage.integers
    shapes = " (x) ".join(f"{stage.rows}x{stage.columns}" for stage in reversed(stages))
    q = "const signed char *q, " if is_int8 else ""
    b = ", float *b" if len(stages) > 1 else ""
    order = ", the last factor first, from x to a, to b, to a, ..." if b else ""
    return f"""\
static const float *{name}(const float *w, {q}const float *x, float *a{b})
{{
    /* {shapes}{order} */
{chr(10).join(lines)}
    return {x};
}}"""


def _stage_function(stage: Stage) -> str:
    arguments = "const float *restrict w, "
    if stage.is_int8:
        arguments += "const signed char *restrict q, "
    head = f"static void {stage.function}({arguments}const float *restrict x, float *restrict y, long count)"
    body = _complex_body(stage) if stage.is_complex else _real_body(stage)
    return f"{head}\n{{\n{body}\n}}"


def _real_body(stage: Stage) -> str:
    return _loops(stage, [f"y[p * count + m] = {_sum(stage, 0, 'x')};"])


def _complex_body(stage: Stage) -> str:
    real = f"{_sum(stage, 0, 'x')} - ({_sum(stage, stage.rows, 'x_im')})"
    imaginary = f"{_sum(stage, 0, 'x_im')} + {_sum(stage, stage.rows, 'x')}"
    return (
        f"    const float *restrict x_im = x + count * {stage.columns};\n"
        f"    float *restrict y_im = y + count * {stage.rows};\n"
        + _loops(stage, [f"y[p * count + m] = {real};", f"y_im[p * count + m] = {imaginary};"])
    )


def _loops(stage: Stage, statements: list[str]) -> str:
    """Small factors: long runs over m, for the compiler to vectorise. Large ones: whole rows at a time."""
    loops = ["for (long m = 0; m < count; m++) {", f"for (long p = 0; p < {stage.rows}; p++) {{"]
    outer, inner = reversed(loops) if _is_unrolled(stage) else loops
    inside = "\n".join(f"            {statement}" for statement in statements)
    return f"    {outer}\n        {inner}\n{inside}\n        }}\n    }}"


def _is_unrolled(stage: Stage) -> bool:
    return stage.columns <= UNROLLED and not stage.is_int8


def _sum(stage: Stage, first_row: int, x: str) -> str:
    """sum_q W[first_row + p][q] x[m][q]."""
    q = stage.columns
    row = f"({first_row} + p)" if first_row else "p"
    if _is_unrolled(stage):
        return " + ".join(
            f"w[{_offset(f'{row} * {q}', j)}] * {x}[{_offset(f'm * {q}', j)}]" for j in range(q)
        )
    if stage.is_int8:
        return f"w[{row.strip('()')}] * dot_int8(q + {row} * {q}, {x} + m * {q}, {q})"
    return f"dot(w + {row} * {q}, {x} + m * {q}, {q})"


def _offset(base: str, offset: int) -> str:
    return f"{base} + {offset}" if offset else base
