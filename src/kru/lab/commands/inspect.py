"""`kru inspect RUN`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kru.lab.cli import parse
from kru.lab.report.inspect import draw_run, load_run, parameters_by_part, spectrum_table
from kru.lab.run import weights_path
from kru.training.files import expect_folder


@dataclass(frozen=True)
class Options:
    """Show parameter counts, spectrum, and distance from unitary during training, for a run or for weights."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """folder of a run such as runs/jsb-kru-seed1, or weights such as results/music/jsb-kru-seed1"""
    out: Path | None = None
    """folder of the plots; default: figures in the folder of the run, or figures/NAME next to the weights"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "inspect", arguments)
    name, model, curve = load_run(options.run)
    if not all(parameter.isfinite().all() for parameter in model.layer.parameters()):
        raise ValueError(f"{options.run}: expected finite recurrent weights, got some that are not")
    if options.run.is_dir():
        beside = options.run / "figures"
    else:
        # Not the folder NAME itself: NAME would then no longer stand for the weights NAME.safetensors.
        beside = options.run.parent / "figures" / weights_path(options.run).stem
    folder = options.out or beside
    expect_folder(folder)
    text = f"{name}\n\n{model}\n\n{parameters_by_part(model)}\n\n{spectrum_table(model.layer)}\n"
    drawn = draw_run(model, curve, folder)
    print("\n".join([text, *map(str, drawn)]))
    return 0
