"""Functions in C that multiply with one Kronecker factor."""

from dataclasses import dataclass

UNROLLED = 8
"""Up to this size a factor's sums are written out."""


@dataclass(frozen=True)
class FactorKind:
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


def factor_function(factor: FactorKind) -> str:
    """y[p, m] = sum_q W[p, q] x[m, q] for `count` values of m: the last index goes to the front."""
    arguments = "const float *restrict w, "
    if factor.is_int8:
        arguments += "const signed char *restrict q, "
    head = f"static void {factor.function}({arguments}const float *restrict x, float *restrict y, long count)"
    body = _complex_body(factor) if factor.is_complex else _real_body(factor)
    return f"{head}\n{{\n{body}\n}}"


def _real_body(factor: FactorKind) -> str:
    return _loops(factor, [f"y[p * count + m] = {_sum(factor, 0, 'x')};"])


def _complex_body(factor: FactorKind) -> str:
    real = f"{_sum(factor, 0, 'x')} - ({_sum(factor, factor.rows, 'x_im')})"
    imaginary = f"{_sum(factor, 0, 'x_im')} + {_sum(factor, factor.rows, 'x')}"
    return (
        f"    const float *restrict x_im = x + count * {factor.columns};\n"
        f"    float *restrict y_im = y + count * {factor.rows};\n"
        + _loops(factor, [f"y[p * count + m] = {real};", f"y_im[p * count + m] = {imaginary};"])
    )


def _loops(factor: FactorKind, statements: list[str]) -> str:
    """Small factors: long runs over m, for the compiler to vectorise. Large ones: whole rows at a time."""
    loops = ["for (long m = 0; m < count; m++) {", f"for (long p = 0; p < {factor.rows}; p++) {{"]
    outer, inner = reversed(loops) if _is_unrolled(factor) else loops
    inside = "\n".join(f"            {statement}" for statement in statements)
    return f"    {outer}\n        {inner}\n{inside}\n        }}\n    }}"


def _is_unrolled(factor: FactorKind) -> bool:
    return factor.columns <= UNROLLED and not factor.is_int8


def _sum(factor: FactorKind, first_row: int, x: str) -> str:
    """sum_q W[first_row + p][q] x[m][q]."""
    q = factor.columns
    row = f"({first_row} + p)" if first_row else "p"
    if _is_unrolled(factor):
        return " + ".join(f"w[{offset(f'{row} * {q}', j)}] * {x}[{offset(f'm * {q}', j)}]" for j in range(q))
    if factor.is_int8:
        return f"w[{row.strip('()')}] * dot_int8(q + {row} * {q}, {x} + m * {q}, {q})"
    return f"dot(w + {row} * {q}, {x} + m * {q}, {q})"


def offset(base: str, count: int) -> str:
    """An expression for a place beyond another."""
    return f"{base} + {count}" if count else base
