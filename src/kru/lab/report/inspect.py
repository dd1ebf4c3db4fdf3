"""What is in a run: parameters by part, the spectrum of its recurrent matrix, its distance from unitary."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

import kru
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.report.text import columns
from kru.lab.result import model_in, read_result, read_weights
from kru.lab.run import weights_path
from kru.lab.trainer import load_checkpoint, model_from
from kru.nn.model import SequenceModel
from kru.nn.recurrent import Recurrent
from kru.nn.spectrum import Spectrum
from kru.optim.parameters import recurrent_parameters
from kru.training.folder import CHECKPOINT, METRICS, WEIGHTS
from kru.training.metrics import read_metrics


def load_run(run: Path) -> tuple[str, SequenceModel, list[dict[str, Any]]]:
    """Name, model and curve of a run (its best weights, else those of its checkpoint) or of weights."""
    if run.is_dir():
        metrics = run / METRICS
        curve = read_metrics(metrics) if metrics.exists() else []
        if (run / WEIGHTS).exists():
            recipe, model = read_weights(run / WEIGHTS)
            return recipe.name, model, curve
        if not (run / CHECKPOINT).exists():
            raise ValueError(
                f"{run}: expected the folder of a run, got one without {WEIGHTS} and {CHECKPOINT}"
            )
        recipe, checkpoint = load_checkpoint(run / CHECKPOINT)
        recipe = replace(recipe, model=model_from(recipe, checkpoint.model or asdict(recipe.model)))
        return recipe.name, model_in(run / CHECKPOINT, recipe, checkpoint.weights), curve
    path = weights_path(run)
    recipe, model = read_weights(path)
    recorded = path.with_suffix(".json")
    curve = read_result(recorded)["curve"] if recorded.exists() else []
    return recipe.name, model, curve


def parameters_by_part(model: nn.Module) -> str:
    """A table of the parameters, with the recurrent ones marked."""
    recurrent = {id(parameter) for parameter in recurrent_parameters(model)}
    rows = [
        [
            name,
            " x ".join(map(str, parameter.shape)),
            f"{parameter.numel():,}",
            "recurrent" if id(parameter) in recurrent else "",
            "" if parameter.requires_grad else "frozen",
        ]
        for name, parameter in model.named_parameters()
    ]
    total = kru.parameter_count(model)
    rows.append(["total", "", f"{total.total:,}", f"{total.recurrent:,} recurrent", ""])
    return columns(["parameter", "shape", "values", "", ""], rows)


def spectra(layer: Recurrent) -> dict[str, Spectrum]:
    """The spectrum of each gate's recurrent matrix."""
    if layer.matrix().gates == 1:
        return {"W": kru.spectrum(layer, dense=True)}
    return {f"W^{gate}": kru.spectrum(layer, gate=gate, dense=True) for gate in layer.gates}


def spectrum_table(layer: Recurrent) -> str:
    """Norm, radius, condition number and distance from unitary of each recurrent matrix."""
    rows = [
        [
            name,
            f"{spectrum.shape[0]:,}",
            f"{spectrum.spectral_norm:.5g}",
            f"{spectrum.spectral_radius:.5g}",
            f"{spectrum.condition_number:.5g}",
            f"{spectrum.distance_from_unitary:.3g}",
        ]
        for name, spectrum in spectra(layer).items()
    ]
    header = ["matrix", "size", "spectral norm", "spectral radius", "condition number", "from unitary"]
    return columns(header, rows)


def draw_run(model: SequenceModel, curve: list[dict[str, Any]], path: Path) -> list[Path]:
    """The spectrum of each matrix, and the distance from unitary over training if that was recorded."""
    written = []
    for name, spectrum in spectra(model.layer).items():
        suffix = name.partition("^")[2]
        written += save_figure(spectrum.plot(), path / f"spectrum{'-' + suffix if suffix else ''}")
    points = [(point["step"], point["distance"]) for point in curve if "distance" in point]
    if points:
        figure, axes = new_figure(1)
        steps, distances = zip(*points, strict=True)
        axes[0].plot(steps, distances, color=COLOURS["kru"])
        axes[0].set(xlabel="training steps", ylabel="max |σ − 1|", title="Distance from unitary")
        if min(distances) > 0:
            axes[0].set_yscale("log")
        written += save_figure(figure, path / "distance")
    return written
