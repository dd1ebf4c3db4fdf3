"""A recurrence as a function in C that takes its state one step further."""

from dataclasses import dataclass

from kru.export.c_product import Products, StoredProduct
from kru.export.c_weights import Matrix, Weights
from kru.export.network import Recurrence
from kru.ops.scan.cells import LEAK, MODRELU_FLOOR


@dataclass(frozen=True)
class Layer:
    """A layer's constants and their use."""

    index: int
    recurrence: Recurrence
    matrices: StoredProduct
    weight: Matrix
    bias: str | None
    recurrent_bias: str | None
    initial: str | None
    leak: str | None
    symbols: bool

    @property
    def function(self) -> str:
        return f"layer_{self.index}"

    @property
    def buffers(self) -> int:
        """How many work buffers it needs: those of its products, and one to keep a gate meanwhile."""
        if self.through_state:
            return 1
        return len(self.matrices.product.buffers) + (self.recurrence.cell != "elman")

    @property
    def through_state(self) -> bool:
        """Whether the product may use the state itself as its second buffer: it is read for one product only."""
        return self.recurrence.cell == "elman" and self.matrices.product.rank == 1 and self.leak is None

    def kept(self, new: str, row: str = "i") -> str:
        """The statement that gives a value of the state its new one."""
        if self.leak is None:
            return f"h[{row}] = {new};"
        return f"h[{row}] += {self.leak}[{row}] * ({new} - h[{row}]);"

    def product(self, gate: int) -> str:
        """W h for the matrix of a gate."""
        return self.matrices.call(
            gate, "h", ("a", "h") if self.through_state else self.matrices.product.buffers
        )

    def gate(self, gate: int, row: str = "i") -> str:
        """What goes into the nonlinearity of a gate beside the recurrent part: (U x + bias)[row]."""
        row = f"{gate * self.recurrence.state_size} + {row}" if gate else row
        part = self.weight.entry(row, "x") if self.symbols else self.weight.times(row, "x")
        is_ordinary = self.bias and self.recurrence.nonlinearity != "modrelu"
        return f"{part} + {self.bias}[{row}]" if is_ordinary else part


def add_layer(
    index: int, recurrence: Recurrence, weights: Weights, products: Products, *, symbols: bool
) -> Layer:
    """Store what a layer needs."""
    matrices = products.add(recurrence, weights, f"recurrent_{index}")

    def vector(name: str) -> str | None:
        array = getattr(recurrence, name)
        return None if array is None else weights.vector(f"{name}_{index}", array)

    vectors = vector("bias"), vector("recurrent_bias"), vector("initial"), vector("leak")
    weight = weights.matrix(f"input_{index}", recurrence.weight)
    return Layer(index, recurrence, matrices, weight, *vectors, symbols)


def layer_function(layer: Layer, state_type: str, width: int) -> str:
    """The function that takes a layer one step further; `width` is the length of a work buffer."""
    x = "long x" if layer.symbols else "const float *x"
    body = {"elman": _elman, "lstm": _lstm, "gru": _gru}[layer.recurrence.cell](layer, width)
    if not layer.symbols:
        body = "\n".join([*(f"    {line}" for line in layer.weight.prelude("x")), body])
    return f"static void {layer.function}({state_type} *state, {x})\n{{\n{body}\n}}"


def _elman(layer: Layer, width: int) -> str:
    units, size = layer.recurrence.units, layer.recurrence.state_size
    head = "\n".join(
        [
            f"    float *h = state->h_{layer.index};",
            _buffers(layer, width),
            f"    const float *z = {layer.product(0)};",
        ]
    )
    if layer.recurrence.nonlinearity != "modrelu":
        name = layer.recurrence.nonlinearity
        value = f"{'tanhf' if name == 'tanh' else name}(z[i] + {layer.gate(0)})"
        if name == "identity":
            value = f"z[i] + {layer.gate(0)}"
        return f"{head}\n" + loop(size, layer.kept(value))
    if not layer.recurrence.is_complex:
        return f"{head}\n" + loop(
            units,
            f"const float z_i = z[i] + {layer.gate(0)};",
            layer.kept(f"z_i * modrelu(fabsf(z_i), {layer.bias}[i])"),
        )
    return f"{head}\n" + loop(
        units,
        f"const float re = z[i] + {layer.gate(0)};",
        f"const float im = z[{units} + i] + {layer.gate(0, f'{units} + i')};",
        f"const float scale = modrelu(sqrtf(re * re + im * im), {layer.bias}[i]);",
        layer.kept("re * scale"),
        layer.kept("im * scale", f"{units} + i"),
    )


def _lstm(layer: Layer, width: int) -> str:
    units = layer.recurrence.units
    i, f, g, o = range(4)
    return "\n".join(
        [
            f"    float *h = state->h_{layer.index}, *c = state->c_{layer.index};",
            _buffers(layer, width, "in"),
            f"    const float *z = {layer.product(f)};",
            loop(units, f"c[i] *= sigmoid(z[i] + {layer.gate(f)});"),
            f"    z = {layer.product(i)};",
            loop(units, f"in[i] = sigmoid(z[i] + {layer.gate(i)});"),
            f"    z = {layer.product(g)};",
            loop(units, f"c[i] += in[i] * tanhf(z[i] + {layer.gate(g)});"),
            f"    z = {layer.product(o)};",
            loop(units, f"h[i] = sigmoid(z[i] + {layer.gate(o)}) * tanhf(c[i]);"),
        ]
    )


def _gru(layer: Layer, width: int) -> str:
    units = layer.recurrence.units
    r, z, n = range(3)
    recurrent = f"(z[i] + {layer.recurrent_bias}[i])" if layer.recurrent_bias else "z[i]"
    return "\n".join(
        [
            f"    float *h = state->h_{layer.index};",
            _buffers(layer, width, "n"),
            f"    const float *z = {layer.product(r)};",
            loop(units, f"n[i] = sigmoid(z[i] + {layer.gate(r)});"),
            f"    z = {layer.product(n)};",
            loop(units, f"n[i] = tanhf({layer.gate(n)} + n[i] * {recurrent});"),
            f"    z = {layer.product(z)};",
            loop(
                units,
                f"const float kept = sigmoid(z[i] + {layer.gate(z)});",
                "h[i] = (1.0f - kept) * n[i] + kept * h[i];",
            ),
        ]
    )


def _buffers(layer: Layer, width: int, *kept: str) -> str:
    """The parts of the work buffer by name, each of this width."""
    names = (*kept, *layer.matrices.product.buffers)[: layer.buffers]
    places = ["state->work", *(f"{name} + {width}" for name in names)]
    return f"    float {', '.join(f'*{name} = {place}' for name, place in zip(names, places, strict=False))};"


def loop(count: int, *statements: str) -> str:
    """Statements for every i below `count`."""
    inside = "\n".join(f"        {statement}" for statement in statements)
    return f"    for (long i = 0; i < {count}; i++) {{\n{inside}\n    }}"


def _dot(name: str, kind: str, sums: int, cast: str = "") -> str:
    zeros = ", ".join(["0.0f"] * sums)
    return f"""\
/* The sum of a[i] b[i], in {sums} partial sums: for the compiler to vectorise, and for smaller errors. */
static float {name}(const {kind} *restrict a, const float *restrict b, long n)
{{
    float s[{sums}] = {{{zeros}}}, rest = 0.0f;
    const long whole = n - n % {sums};
    for (long i = 0; i < whole; i += {sums}) {{
        for (int j = 0; j < {sums}; j++) {{
            s[j] += {cast}a[i + j] * b[i + j];
        }}
    }}
    for (long i = whole; i < n; i++) {{
        rest += {cast}a[i] * b[i];
    }}
    for (int half = {sums // 2}; half > 0; half /= 2) {{
        for (int j = 0; j < half; j++) {{
            s[j] += s[j + half];
        }}
    }}
    return s[0] + rest;
}}"""


HELPERS = {
    "dot": _dot("dot", "float", 8),
    "dot_int8": _dot("dot_int8", "signed char", 16, "(float)"),
    "dot_integers": """\
/* The sum of a[i] b[i]. */
static long dot_integers(const signed char *restrict a, const signed char *restrict b, long n)
{
    int sum = 0;
    for (long i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}""",
    "rounded": """\
/* The nearest integers q of x in units of the largest |x[i]| / 127, which is returned. */
static float rounded(const float *x, signed char *q, long n)
{
    float largest = 0.0f;
    for (long i = 0; i < n; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float unit = largest > 0.0f ? largest / 127.0f : 1.0f;
    for (long i = 0; i < n; i++) {
        const float z = x[i] / unit;
        q[i] = (signed char)(z < 0.0f ? z - 0.5f : z + 0.5f);
    }
    return unit;
}""",
    "relu": """\
static float relu(float z)
{
    return z > 0.0f ? z : 0.0f;
}""",
    "leaky_relu": f"""\
static float leaky_relu(float z)
{{
    return z > 0.0f ? z : {LEAK}f * z;
}}""",
    "gelu": """\
static float gelu(float z)
{
    return 0.5f * z * (1.0f + erff(z * 0.70710678f));
}""",
    "log_softmax": """\
static void log_softmax(float *y, long n)
{
    float largest = y[0], sum = 0.0f;
    for (long i = 1; i < n; i++) {
        largest = y[i] > largest ? y[i] : largest;
    }
    for (long i = 0; i < n; i++) {
        sum += expf(y[i] - largest);
    }
    largest += logf(sum);
    for (long i = 0; i < n; i++) {
        y[i] -= largest;
    }
}""",
    "softmax": """\
static void softmax(float *y, long n)
{
    float largest = y[0], sum = 0.0f;
    for (long i = 1; i < n; i++) {
        largest = y[i] > largest ? y[i] : largest;
    }
    for (long i = 0; i < n; i++) {
        y[i] = expf(y[i] - largest);
        sum += y[i];
    }
    for (long i = 0; i < n; i++) {
        y[i] /= sum;
    }
}""",
    "sigmoid": """\
static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}""",
    "modrelu": f"""\
/* What a number of this size is multiplied with: max(size + bias, 0) / size. */
static float modrelu(float size, float bias)
{{
    const float above = size + bias;
    return (above > 0.0f ? above : 0.0f) / (size > {MODRELU_FLOOR}f ? size : {MODRELU_FLOOR}f);
}}""",
}
"""Functions that the generated code may call."""
