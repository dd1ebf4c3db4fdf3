"""What follows the recurrent layers in C: dense layers, activations, softmax and labels."""

from collections.abc import Callable
from typing import NamedTuple

from kru.export.c_weights import Weights
from kru.export.network import Affine, Network

_NAMES = {"relu": "relu", "tanh": "tanhf", "sigmoid": "sigmoid", "gelu": "gelu"}


class Head(NamedTuple):
    """The statements that compute y from the states called x, and (name, size, comment) of arrays they work in."""

    code: Callable[[str], str]
    arrays: list[tuple[str, int, str]]


def head_code(network: Network, weights: Weights) -> Head:
    """Store the maps of the head. The last one writes to y, those before it to arrays in turns."""
    stages: list[tuple[Affine | None, list[str]]] = [(None, [])]
    for step in network.head:
        if isinstance(step, Affine):
            stages.append((step, []))
        else:
            stages[-1][1].append(step)
    if len(stages) > 1 and not stages[0][1]:
        del stages[0]
    pieces, sizes, size = [], [0, 0], network.read_size
    for index, (affine, activations) in enumerate(stages):
        is_last = index == len(stages) - 1
        value = None
        if affine is not None:
            number = "" if is_last else f"_{index}"
            matrix = weights.matrix(f"output{number}", affine.weight)
            bias = None if affine.bias is None else weights.vector(f"output{number}_bias", affine.bias)
            value = (matrix, bias)
            size = int(affine.weight.shape[0])
        if not is_last:
            sizes[index % 2] = max(sizes[index % 2], size)
        pieces.append((value, activations, size, "y" if is_last else f"state->head_{index % 2}"))

    def code(x: str) -> str:
        lines = []
        for value, activations, count, to in pieces:
            expression = f"{x}[i]"
            if value is not None:
                expression = value[0].times("i", x) + (f" + {value[1]}[i]" if value[1] else "")
            waiting = list(activations)
            while waiting and waiting[0] in _NAMES:
                expression = f"{_NAMES[waiting.pop(0)]}({expression})"
            loop = _loop(count, f"{to}[i] = {expression};")
            prelude = value[0].prelude(x) if value is not None else []
            if prelude:
                inside = "\n".join([*(f"        {line}" for line in prelude), loop])
                loop = "        {\n" + inside.replace("        ", "            ", 1) + "\n        }"
            lines.append(loop)
            for name in waiting:
                call = f"{name}({to}, {count});"
                lines.append(
                    _loop(count, f"{to}[i] = {_NAMES[name]}({to}[i]);")
                    if name in _NAMES
                    else f"        {call}"
                )
            x = to
        return "\n".join(lines)

    arrays = [(f"head_{i}", count, "neither has this") for i, count in enumerate(sizes) if count]
    return Head(code, arrays)


def _loop(count: int, statement: str) -> str:
    return f"        for (long i = 0; i < {count}; i++) {{\n            {statement}\n        }}"


def label_prototypes(name: str, network: Network) -> str:
    """What the header says of labels."""
    if not network.labels:
        return ""
    return f"""
#define {name.upper()}_LABELS {len(network.labels)}

/* The label that the outputs of a step speak for. */
const char *{name}_label(const float *y);
"""


def label_code(name: str, network: Network) -> list[str]:
    """The function that names the largest output, or the side of a single one."""
    if not network.labels:
        return []
    names = ", ".join(_string(label) for label in network.labels)
    find = f"    const int best = y[0] > {network.threshold}f;"
    if network.output_size > 1:
        find = f"""\
    int best = 0;
    for (int i = 1; i < {network.output_size}; i++) {{
        if (y[i] > y[best]) {{
            best = i;
        }}
    }}"""
    return [
        f"""\
const char *{name}_label(const float *y)
{{
    static const char *const names[] = {{{names}}};
{find}
    return names[best];
}}"""
    ]


def _string(text: str) -> str:
    """A string of C; everything but plain letters and digits as the octal numbers of its bytes."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-."
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()) + '"'
