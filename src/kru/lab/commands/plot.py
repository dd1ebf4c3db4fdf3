"""`kru plot`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kru.lab.cli import parse
from kru.lab.report.figures import WALL_CLOCK, draw_figures, expect_figures, figure_names
from kru.lab.report.own import draw_own_figures
from kru.lab.report.records import read_results
from kru.training.files import expect_folder


@dataclass(frozen=True)
class Options:
    """Draw learning curves of recorded runs as PNG and SVG: the paper's figures, and one figure per other task."""

    figures: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """figures to draw: copy, adding, mnist, ptb, music, timit, wall-clock; default: all that have runs, and figures
    of your own tasks and recipes"""
    results: Path = Path("results")
    """folder of recorded results (TASK/RECIPE-seedN.json), or of runs"""
    out: Path | None = None
    """folder of the figures; default: figures in the folder of the results"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "plot", arguments)
    folder = options.out or options.results / "figures"
    expect_figures(options.figures)
    results = read_results(options.results)
    # Times can be compared within one run on a quiet machine, which is kept apart from the others.
    timed = options.results / WALL_CLOCK
    times = read_results(timed) if timed.is_dir() else results
    expect_folder(folder)
    written = [
        path
        for name in options.figures or figure_names()
        for path in draw_figures(times if name == WALL_CLOCK else results, folder, [name])
    ]
    if not options.figures:
        written += draw_own_figures(results, folder)
    if not written:
        raise ValueError(f"{options.results}: has no run for {', '.join(options.figures) or 'any figure'}")
    print("\n".join(map(str, written)))
    return 0
