"""C99 source of a trained model, for microcontrollers."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from kru.export.c_source import write_c
from kru.export.cortex_m import code_bytes
from kru.export.folder import Export, new_folder
from kru.export.names import check_name
from kru.export.network import require_one_direction
from kru.export.source import network_from


@dataclass(frozen=True)
class C99Export(Export):
    """What `c99` left.

    Attributes:
        weight_bytes: constants, in flash.
        state_bytes: a state, in RAM; beside it a step takes a few hundred bytes of stack.
        code_bytes: code for a Cortex-M4, where its compiler is installed.
    """

    weight_bytes: int = 0
    state_bytes: int = 0
    code_bytes: int | None = None


def c99(
    model: nn.Module,
    folder: str | Path,
    *,
    name: str = "model",
    origin: str = "",
    int8: bool = False,
    symbols: bool = False,
    embedding: nn.Embedding | None = None,
    output: nn.Linear | None = None,
) -> C99Export:
    """Write NAME.h and NAME.c into a new folder: the streaming step of a model in C99.

    `NAME_reset(state)` begins a sequence and `NAME_step(state, x, y)` takes one step, in float32, with
    D values x, or one symbol, and C values y. The state is a struct of the caller's; nothing is allocated,
    nothing but math.h is needed. A bidirectional model has no step.

    Args:
        model: a recurrent layer, or a module made of one and a linear output.
        folder: a name that is still free.
        name: how files and identifiers begin.
        origin: where the model comes from, for the comments; the name of its class if empty.
        int8: whether the large matrices are stored as integers with a scale for each row; sums and states
            are in float as ever.
        symbols: whether the input is integers.
        embedding, output: the maps around a layer.
    """
    check_name(name)
    network = network_from(model, origin=origin, symbols=symbols, embedding=embedding, output=output)
    require_one_direction(network, "c99")
    written = write_c(network, name, int8=int8)
    folder = Path(folder)
    with new_folder(folder) as unfinished:
        files = {f"{name}.h": written.header, f"{name}.c": written.source}
        for file, text in files.items():
            (unfinished / file).write_text(text, encoding="ascii")
        code = code_bytes(unfinished / f"{name}.c", written.weight_bytes)
    measured = "the code" if code is None else f"{code:,} of code for a Cortex-M4 at -Os"
    notes = (
        f"flash: {written.weight_bytes:,} bytes of weights and {measured}",
        f"RAM: {written.state_bytes:,} bytes for each state",
    )
    return C99Export(
        tuple(folder / file for file in files), notes, written.weight_bytes, written.state_bytes, code
    )
