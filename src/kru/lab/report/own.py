"""Tables and figures of runs that no table of the paper has: your own tasks, models and recipes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from kru.lab.report.figures import PANEL, draw_panel
from kru.lab.report.paper import paper_tables
from kru.lab.report.records import Result, by_recipe
from kru.lab.report.style import LOOKS, Look, new_figure, save_figure
from kru.lab.report.tables import Table, mean
from kru.nn.kinds import find_kind

OTHER = "#332288"
"""The colour of a model that is not registered."""

HEADER = ("recipe", "model", "parameters", "recurrent", "valid", "test", "steps", "minutes", "seeds")


class Group(NamedTuple):
    """Runs that can be compared: of the same task, with the same measure."""

    task: str
    measure: str
    runs: dict[str, list[Result]]
    """by recipe"""


def own_groups(results: Iterable[Result]) -> list[Group]:
    """The runs that no table of the paper has, in the order of their tasks' names."""
    shown = {
        f"{table.task}-{model}"
        for table in paper_tables()
        for model in (*LOOKS, *(row.model for row in table.rows))
    }
    grouped: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result["recipe"] not in shown:
            grouped[str(result.get("task", result["recipe"])), result["measure"]].append(result)
    return [
        Group(task, measure, dict(sorted(by_recipe(runs).items())))
        for (task, measure), runs in sorted(grouped.items())
    ]


def own_tables(results: Iterable[Result]) -> list[Table]:
    """A table for each group, a row for each recipe."""
    tables = []
    for group in own_groups(results):
        runs = [run for seeds in group.runs.values() for run in seeds]
        better = "lower" if runs[0]["lower_is_better"] else "higher"
        note = f"{group.measure}, {better} is better; {runs[0]['baseline']:.3g} without memory."
        tables.append(Table(group.task, note, [_row(*item) for item in group.runs.items()], runs, HEADER))
    return tables


def draw_own_figures(results: Iterable[Result], folder: Path) -> list[Path]:
    """Learning curves of each group, as own-TASK.png and .svg."""
    written: list[Path] = []
    names: set[str] = set()
    for group in own_groups(results):
        name = file_name(group.task)
        if name in names:
            name = file_name(f"{group.task} {group.measure}")
        names.add(name)
        figure, (axes,) = new_figure(1, size=PANEL)
        draw_panel(axes, group.task, group.runs, "step", own_looks(group.runs))
        written += save_figure(figure, folder / name)
    return written


def file_name(task: str) -> str:
    """What the figure of a task is called; it can be none of the paper's.

    >>> file_name("Copy memory, T=30")
    'own-copy-memory-t-30'
    """
    return "own-" + re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")


def look_of(kind: str) -> Look:
    """The look of a kind of model; its name is the label where the kind is not known."""
    if kind in LOOKS:
        return LOOKS[kind]
    try:
        found = find_kind(kind)
    except ValueError:
        return Look(kind, OTHER)
    return Look(found.label, found.colour, found.dash)


def _row(recipe: str, seeds: Sequence[Result]) -> list[str]:
    kind = str(seeds[0].get("model", ""))
    count = seeds[0]["parameters"]
    return [
        recipe,
        look_of(kind).label,
        f"{count['total']:,}",
        f"{count['recurrent']:,}",
        mean([run["valid"] for run in seeds]),
        mean([run["test"] for run in seeds]),
        f"{fmean(run['steps'] for run in seeds):,.0f}",
        f"{fmean(run['wall_seconds'] for run in seeds) / 60:.1f}",
        str(len(seeds)),
    ]


def own_looks(runs: dict[str, list[Result]]) -> dict[str, Look]:
    """The look of each recipe's lines: its model's, or one that is free where two recipes have the same model."""
    palette = list(dict.fromkeys(look.colour for look in LOOKS.values()))
    free = list(product(("-", "--", ":", "-."), palette))
    looks: dict[str, Look] = {}
    for recipe, seeds in runs.items():
        wanted = look_of(str(seeds[0].get("model", "")))
        taken = {(look.dash, look.colour) for look in looks.values()}
        dash, colour = wanted.dash, wanted.colour
        if (dash, colour) in taken:
            dash, colour = next((pair for pair in free if pair not in taken), (dash, colour))
        looks[recipe] = Look(recipe, colour, dash)
    return looks
