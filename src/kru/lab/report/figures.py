"""The paper's figures: learning curves, and curves over wall-clock time."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes

from kru.lab.report.paper import paper_tables
from kru.lab.report.records import Result, by_recipe
from kru.lab.report.style import LABELS, LOOKS, Look, new_figure, save_figure
from kru.lab.spelling import expect_known

WALL_CLOCK = "wall-clock"
FLOOR = 1e-6
"""Measures that fall towards zero are drawn on a logarithmic axis, down to here."""

PANEL = (6.4, 5.0)
"""Inches of a panel with the legend below it."""

Axis = Literal["step", "seconds"]


def figure_names() -> list[str]:
    """What can be drawn: a figure for each target of the paper, and wall-clock time on the music."""
    return [*dict.fromkeys(table.target for table in paper_tables()), WALL_CLOCK]


def expect_figures(names: Sequence[str]) -> None:
    """Raise if one of these can't be drawn."""
    for name in names:
        expect_known("figure", name, figure_names())


def draw_figures(results: Sequence[Result], folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Draw the named figures, all for none, as PNG and SVG; those without a run are left out."""
    expect_figures(names)
    written = []
    for name in names or figure_names():
        target, axis = ("music", "seconds") if name == WALL_CLOCK else (name, "step")
        tasks = [table for table in paper_tables() if table.target == target]
        grouped = by_recipe(results)
        panels = []
        for table in tasks:
            runs = {
                kind: grouped[f"{table.task}-{kind}"] for kind in LABELS if f"{table.task}-{kind}" in grouped
            }
            if runs:
                panels.append((table.title, runs))
        if not panels:
            continue
        figure, axes = new_figure(len(panels), size=PANEL)
        for plot, (title, runs) in zip(axes, panels, strict=True):
            draw_panel(plot, title, runs, "step" if axis == "step" else "seconds")
        written += save_figure(figure, folder / name)
    return written


def draw_panel(
    axes: Axes,
    title: str,
    runs: Mapping[str, list[Result]],
    axis: Axis,
    looks: Mapping[str, Look] = LOOKS,
) -> None:
    """The validation measure of each model, a line for each seed, and the baseline without memory.

    Args:
        runs: by model, or by another key of `looks`.
        looks: how the lines of each look.
    """
    any_run = next(iter(runs.values()))[0]
    falls_to_zero = any_run["measure"] in ("cross entropy", "mean squared error")
    baseline = any_run["baseline"]
    # A run that diverged at once has no curve.
    ends = [
        result["curve"][-1]["seconds"] for results in runs.values() for result in results if result["curve"]
    ]
    longest = max(ends, default=0.0)
    unit, scale = ("minutes", 60.0) if longest > 120 else ("seconds", 1.0)
    best = min if any_run["lower_is_better"] else max
    values, bests = [], []
    for kind, results in runs.items():
        for number, result in enumerate(results):
            points = [point for point in result["curve"] if "valid" in point]
            late = [point["valid"] for point in points[len(points) // 10 :] if isfinite(point["valid"])]
            values += late
            bests += [best(late)] if late else []
            axes.plot(
                [point[axis] / (scale if axis == "seconds" else 1) for point in points],
                [max(point["valid"], FLOOR) if falls_to_zero else point["valid"] for point in points],
                color=looks[kind].colour,
                linestyle=looks[kind].dash,
                alpha=1.0 if number == 0 else 0.5,
                label=looks[kind].label if number == 0 else None,
            )
    axes.set(
        title=title,
        xlabel=f"{unit} of training" if axis == "seconds" else "training steps",
        ylabel=f"validation\n{any_run['measure']}",
    )
    # With more, numbers of five digits touch.
    axes.locator_params(axis="x", nbins=6)
    place = ""
    if falls_to_zero:
        axes.set_yscale("log")
    elif values:
        low, high = limits(values, any_run["lower_is_better"], bests)
        axes.set_ylim(low, high)
        place = ", below" if baseline < low else ", above" if baseline > high else ""
    axes.axhline(
        baseline, color="0.4", linestyle=":", linewidth=1.5, label=f"no memory ({baseline:.3g}{place})"
    )
    # Below the panel: within it, wherever that is, it hides the curves of some seeds.
    # Narrow enough to leave the neighbour's alone with the seven models of MNIST.
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=3,
        fontsize=10,
        columnspacing=1.0,
        handlelength=1.5,
        handletextpad=0.5,
        frameon=False,
    )


def limits(values: list[float], lower_is_better: bool, shown: Sequence[float] = ()) -> tuple[float, float]:
    """Limits that leave out the worst tenth, but none of those `shown`: the first steep part would flatten the rest."""
    values = sorted(values)
    cut = len(values) // 10
    low, high = (values[0], values[-1 - cut]) if lower_is_better else (values[cut], values[-1])
    low, high = min([low, *shown]), max([high, *shown])
    margin = 0.08 * (high - low) or 0.1
    return low - margin, high + margin
