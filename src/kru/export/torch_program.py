"""torch.export programs, which load without this package."""

import warnings
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.export import Dim

from kru.export.folder import Export, new_folder
from kru.export.forecast import expect_no_forecast
from kru.export.names import check_name
from kru.export.network import NO_STREAM, Network, write_first_state, write_labels, write_vocabulary
from kru.export.source import Around, Source, network_from
from kru.export.torch_modules import Sequence, Step

STEPS, BATCH = 5, 3  # of the example that is traced


def program(
    model: Source,
    folder: str | Path,
    *,
    name: str = "model",
    **around: Unpack[Around],
) -> Export:
    """Write `torch.export` programs NAME_step.pt2 and NAME_sequence.pt2 into a new folder.

    Both are plain PyTorch operations in float32 with any batch size B, so `torch.export.load(path).module()`
    needs torch and nothing else. With L layers, states of S values, D features and C outputs:

    - step: input (B, D), or symbols (B,), and h (L, B, S), for an LSTM also c, to the output (B, C) and the
      new states;
    - sequence: input (T, B, D), or symbols (T, B), of any length T, to outputs (T, B, C), of a model that
      reads the last state (B, C), and the last states; the time loop is torch's scan operator. The layout is
      (B, T, ...) for a layer with `batch_first`.

    A bidirectional model has no step. A model whose first state is not zero but learned has it in NAME_h.json, as
    a list for each layer, for the step.

    Args:
        model: a layer, a module, or an `Exportable`; see there.
        folder: a name that is still free.
        name: how the files begin.
        around: the other fields of `kru.export.Exportable`: scaling, labels, probabilities and so on.
    """
    check_name(name)
    expect_no_forecast(model, "program")
    network = network_from(model, around)
    folder = Path(folder)
    with new_folder(folder) as unfinished:
        notes = _about_sound(network)
        if network.is_bidirectional:
            notes.append(f"no step: {NO_STREAM}")
        else:
            _save(_step(network), unfinished / f"{name}_step.pt2")
            write_first_state(network, unfinished / f"{name}_h.json")
        _save(_sequence(network), unfinished / f"{name}_sequence.pt2")
        write_labels(network, unfinished / f"{name}_labels.json")
        write_vocabulary(network, unfinished / f"{name}_symbols.json")
        files = sorted(path.name for path in unfinished.iterdir())
    return Export(tuple(folder / file for file in files), tuple(notes))


def _about_sound(network: Network) -> list[str]:
    if network.sound is None:
        return []
    features = network.sound.features
    return [
        f"step: takes a window of {features.window} samples, one every {features.hop}; sequence: samples, at least "
        f"{features.window + features.hop}"
    ]


def _step(network: Network) -> torch.export.ExportedProgram:
    batch = Dim("batch", min=1)
    rows = len(network.layers), BATCH, network.first.state_size
    states = {state: torch.zeros(rows) for state in network.first.states}
    others = [({1: batch}, state) for state in states.values()]
    others += [({0: batch}, torch.zeros(BATCH, size)) for size in network.carried.values()]
    (h_shape, h), *rest = others
    shapes: dict[str, Any] = {"input": {0: batch}, "h": h_shape}
    if rest:
        shapes["others"] = tuple(shape for shape, _ in rest)
    leading = (BATCH,) if network.sound is None else (BATCH, network.sound.features.window)
    return _export(Step(network), (_example(network, *leading), h, *(state for _, state in rest)), shapes)


def _sequence(network: Network) -> torch.export.ExportedProgram:
    least, more = 1, STEPS - 1
    if network.sound is not None:
        # The tracer takes a dimension of one for a constant: there have to be two windows.
        features = network.sound.features
        least, more = features.window + features.hop, (STEPS - 2) * features.hop
    batch, steps = Dim("batch", min=1), Dim("steps", min=least)
    leading = (BATCH, least + more) if network.batch_first else (least + more, BATCH)
    dims = (batch, steps) if network.batch_first else (steps, batch)
    shapes = {"input": dict(enumerate(dims))}
    return _export(Sequence(network), (_example(network, *leading),), shapes)


def _example(network: Network, *leading: int) -> Tensor:
    if network.symbols:
        return torch.zeros(leading, dtype=torch.int64)
    return torch.zeros(*leading, network.input_size)


def _export(
    module: nn.Module, example: tuple[Tensor, ...], shapes: dict[str, Any]
) -> torch.export.ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings():
        # The tracer warns of parts of torch that torch itself has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return torch.export.export(module, example, dynamic_shapes=shapes)


def _save(exported: torch.export.ExportedProgram, path: Path) -> None:
    torch.export.save(exported, path)
