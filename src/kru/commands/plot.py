"""`kru plot`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kru.cli import parse
from kru.report.figures import draw_figures, expect_figures
from kru.report.records import read_results
from kru.training.files import expect_folder


@dataclass(frozen=True)
class Options:
    """Draw the paper's figures from recorded runs, as PNG and SVG."""

    figures: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """which: copy, adding, mnist, ptb, music, timit, wall-clock; none: all that have runs"""
    results: Path = Path("results")
    """folder of RECIPE-seedN.json files, or of runs"""
    out: Path | None = None
    """folder of the figures; else the folder figures in that of the results"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "plot", arguments)
    folder = options.out or options.results / "figures"
    expect_figures(options.figures)
    results = read_results(options.results)
    expect_folder(folder)
    written = draw_figures(results, folder, options.figures)
    if not written:
        raise ValueError(f"{options.results}: has no run for {', '.join(options.figures) or 'any figure'}")
    print("\n".join(map(str, written)))
    return 0
