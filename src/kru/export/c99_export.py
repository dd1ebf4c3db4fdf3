"""C99 source of a trained model, for microcontrollers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from kru.export.c_forecast import ForecastSource, write_forecast_c
from kru.export.c_source import write_c
from kru.export.cortex_m import code_bytes
from kru.export.folder import Export, new_folder
from kru.export.forecast import forecast_from
from kru.export.names import check_name
from kru.export.network import require_one_direction, write_vocabulary
from kru.export.source import Around, Source, network_from


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
    model: Source,
    folder: str | Path,
    *,
    name: str = "model",
    int8: bool = False,
    int8_activations: bool = False,
    **around: Unpack[Around],
) -> C99Export:
    """Write NAME.h and NAME.c into a new folder: the streaming step of a model in C99.

    `NAME_reset(state)` begins a sequence and `NAME_step(state, x, y)` takes one step, in float32, with
    D values x, or one symbol, and C values y. The state is a struct of the caller's; nothing is allocated,
    nothing but math.h is needed. A bidirectional model has no step.

    Of a forecaster, `NAME_step(state, y)` takes the next value of a series, and `NAME_forecast(state, y, lower, upper)`
    computes those that follow; its network has files of its own, NAME_network.h and NAME_network.c.

    Args:
        model: a layer, a module, or an `Exportable`; see there.
        folder: a name that is still free.
        name: how files and identifiers begin.
        int8: whether the large matrices are stored as integers with a scale for each row; sums and states
            are in float as ever.
        int8_activations: whether the vectors that are multiplied with these matrices are rounded to integers too, so
            that sums of integers are computed; takes `int8` for granted. States stay in float.
        around: the other fields of `kru.export.Exportable`: scaling, labels, probabilities and so on.
    """
    check_name(name)
    int8 = int8 or int8_activations
    folder = Path(folder)
    forecast = forecast_from(model, around)
    if forecast is not None:
        return _write_forecast(
            write_forecast_c(forecast, name, int8=int8, activations=int8_activations), folder
        )
    network = network_from(model, around)
    require_one_direction(network, "c99")
    written = write_c(network, name, int8=int8, activations=int8_activations)
    with new_folder(folder) as unfinished:
        files = {f"{name}.h": written.header, f"{name}.c": written.source}
        for file, text in files.items():
            (unfinished / file).write_text(text, encoding="ascii")
        write_vocabulary(network, unfinished / f"{name}_symbols.json")
        symbols = [path.name for path in unfinished.glob("*.json")]
        code = code_bytes(unfinished / f"{name}.c", written.weight_bytes)
    measured = "the code" if code is None else f"{code:,} of code for a Cortex-M4 at -Os"
    notes = (
        f"flash: {written.weight_bytes:,} bytes of weights and {measured}",
        f"RAM: {written.state_bytes:,} bytes for each state",
    )
    return C99Export(
        tuple(folder / file for file in [*files, *symbols]),
        notes,
        written.weight_bytes,
        written.state_bytes,
        code,
    )


def _write_forecast(written: ForecastSource, folder: Path) -> C99Export:
    with new_folder(folder) as unfinished:
        for file, text in written.files.items():
            (unfinished / file).write_text(text, encoding="ascii")
    notes = (
        f"flash: {written.weight_bytes:,} bytes of weights and the code",
        f"RAM: {written.state_bytes:,} bytes for each state",
    )
    files = tuple(folder / file for file in written.files)
    return C99Export(files, notes, written.weight_bytes, written.state_bytes)
