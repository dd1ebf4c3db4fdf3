"""ONNX files of a trained model."""

from pathlib import Path
from typing import Unpack

from kru.export.folder import Export, new_folder
from kru.export.forecast import expect_no_forecast
from kru.export.names import check_name
from kru.export.network import NO_STREAM, write_first_state, write_vocabulary
from kru.export.source import Around, Source, network_from


def onnx(
    model: Source,
    folder: str | Path,
    *,
    name: str = "model",
    **around: Unpack[Around],
) -> Export:
    """Write the ONNX models NAME_step.onnx and NAME_sequence.onnx into a new folder.

    Real float32 tensors only, any batch size B. With L layers, states of S values, D features and C outputs:

    - step: `input` (B, D), or symbols (B,) of int64, and `h` (L, B, S), for an LSTM also `c`, to `output`
      (B, C) and `h_next`, `c_next`;
    - sequence: `input` (T, B, D), or symbols (T, B), of any length T, to `output` (T, B, C), of a model that
      reads the last state (B, C), and `h_last`, `c_last`. The layout is (B, T, ...) for a layer with
      `batch_first`.

    A bidirectional model has no step. A model whose first state is not zero but learned has it in NAME_h.json, as
    a list for each layer, for the step. The arguments are those of `kru.export.program`.
    """
    check_name(name)
    expect_no_forecast(model, "onnx")
    try:
        from kru.export.onnx_model import OPSET, sequence_model, step_model
    except ModuleNotFoundError as error:
        raise RuntimeError(f"{error.name}: not installed; pip install 'kru[export]'") from error
    network = network_from(model, around)
    folder = Path(folder)
    with new_folder(folder) as unfinished:
        notes = [f"opset {OPSET}"]
        if network.sound is not None:
            features = network.sound.features
            notes.append(
                f"step: takes a window of {features.window} samples, one every {features.hop}; sequence: samples"
            )
        if network.is_bidirectional:
            notes.append(f"no step: {NO_STREAM}")
        else:
            (unfinished / f"{name}_step.onnx").write_bytes(step_model(network, name))
            write_first_state(network, unfinished / f"{name}_h.json")
        (unfinished / f"{name}_sequence.onnx").write_bytes(sequence_model(network, name))
        write_vocabulary(network, unfinished / f"{name}_symbols.json")
        files = sorted(path.name for path in unfinished.iterdir())
    return Export(tuple(folder / file for file in files), tuple(notes))
