"""JavaScript of a trained model, for browsers and Node."""

from pathlib import Path
from typing import Unpack

from kru.export.folder import Export, new_folder
from kru.export.forecast import forecast_from
from kru.export.js_forecast import write_forecast_javascript
from kru.export.js_source import write_javascript
from kru.export.names import check_name
from kru.export.network import require_one_direction, write_vocabulary
from kru.export.source import Around, Source, network_from


def javascript(
    model: Source, folder: str | Path, *, name: str = "model", int8: bool = False, **around: Unpack[Around]
) -> Export:
    """Write NAME.mjs into a new folder: an ES module without dependencies, its weights inside.

    `reset()` starts a sequence, `step(x)` takes D values, or one symbol, and returns `{ outputs }`, with labels
    also `label` and, where outputs are probabilities, `probabilities`. `run(sequence)` is reset and all steps: the
    last result, or one result for each step if the model has an output for each. `state()` copies the state of each
    layer. `create()` makes further streams.
    A bidirectional model has no step.

    Of a forecaster, `step(y)` takes the next value of a series, and `forecast()` returns `{ forecast, lower, upper }`;
    its network is in a module of its own, NAME_network.mjs.

    Args:
        model: a layer, a module, or an `Exportable`; see there.
        folder: a name that is still free.
        name: how the file begins.
        int8: whether the large matrices are stored as integers with a scale for each row.
        around: the other fields of `kru.export.Exportable`: scaling, labels, probabilities and so on.
    """
    check_name(name)
    folder = Path(folder)
    forecast = forecast_from(model, around)
    if forecast is not None:
        texts = write_forecast_javascript(forecast, name, int8=int8)
        with new_folder(folder) as unfinished:
            for file, text in texts.items():
                (unfinished / file).write_text(text, encoding="ascii")
        return Export(tuple(folder / file for file in texts))
    network = network_from(model, around)
    require_one_direction(network, "javascript")
    with new_folder(folder) as unfinished:
        (unfinished / f"{name}.mjs").write_text(write_javascript(network, name, int8=int8), encoding="ascii")
        write_vocabulary(network, unfinished / f"{name}_symbols.json")
        files = sorted(path.name for path in unfinished.iterdir())
    return Export(tuple(folder / file for file in files))
