"""`kru export WEIGHTS --to FORMAT -o DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from kru import export
from kru.export.source import Source
from kru.lab.cli import parse
from kru.lab.commands.own_data import estimator_path, load_estimator
from kru.lab.result import read_weights
from kru.lab.run import weights_path
from kru.lab.tasks.own_files import Sequences, Text


@dataclass(frozen=True)
class Options:
    """Export a trained model as C99, JavaScript, ONNX or torch.export programs."""

    weights: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    """a model that `kru fit` wrote, weights such as results/music/jsb-kru-seed1, or the folder of a run"""
    to: Literal["onnx", "c99", "js", "pt2"]
    """format to export to"""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """new folder for the files"""
    name: str = "model"
    """name of the files, and prefix of the identifiers in C"""
    int8: bool = False
    """c99, js: store large matrices as 8-bit integers with one scale per row"""
    int8_activations: bool = False
    """c99: also round the vectors that these matrices multiply to 8-bit integers"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "export", arguments)
    if options.int8 and options.to not in ("c99", "js"):
        raise ValueError(f"int8: expected --to c99 or js, got --to {options.to}")
    if options.int8_activations and options.to != "c99":
        raise ValueError(f"int8-activations: expected --to c99, got --to {options.to}")
    about: dict[str, Any] = {}
    model: Source
    if estimator_path(options.weights) is not None:
        model = load_estimator(options.weights)
    else:
        recipe, model = read_weights(weights_path(options.weights))
        about = {"origin": f"{recipe.name} seed {recipe.seed}", "symbols": recipe.task.sizes.symbols}
        if isinstance(recipe.task, Sequences | Text):
            about |= recipe.task.around()
    try:
        written = _write(options, model, about)
    except TypeError as error:
        # How the library refuses a model that a format cannot express.
        raise ValueError(f"{options.weights}: cannot be exported to {options.to} ({error})") from error
    files = [f"{file}  {file.stat().st_size:,} bytes" for file in written.files]
    print("\n".join([*files, *written.notes]))
    return 0


def _write(options: Options, model: Source, about: dict[str, Any]) -> export.Export:
    if options.to in ("c99", "js"):
        if options.to == "js":
            return export.javascript(model, options.out, name=options.name, int8=options.int8, **about)
        return export.c99(
            model,
            options.out,
            name=options.name,
            int8=options.int8,
            int8_activations=options.int8_activations,
            **about,
        )
    write = export.onnx if options.to == "onnx" else export.program
    return write(model, options.out, name=options.name, **about)
