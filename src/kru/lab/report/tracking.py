"""The study of state tracking: accuracy on sequences longer than any in training, beside recurrent parameters."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kru.lab.report.records import Result
from kru.lab.report.style import LOOKS, new_figure, save_figure
from kru.lab.report.text import markdown
from kru.lab.report.unitary import Runs, by_task
from kru.lab.studies.tracking import MODELS, SIZED, SIZES, TRACKING_TASKS, size_label
from kru.lab.tasks.automata import find_automaton
from kru.lab.tasks.tracking import BIN

SOLVED = 99.0
"""Per cent of right answers from which on a task counts as solved at a length."""

TITLES = {name: find_automaton(name).label for name in TRACKING_TASKS}
LABELS = {
    **{model: LOOKS[model].label for model in MODELS},
    **{
        size_label(model, factors): f"{LOOKS[model].label}, factors {' × '.join(map(str, factors))}"
        for model in SIZED
        for factors in SIZES
    },
}
"""The labels of the settings in the order of the tables: models of one size, then other sizes."""


def tracking_findings(records: Sequence[Result]) -> list[str]:
    """Paragraphs and tables in Markdown."""
    tasks = by_task(records, TRACKING_TASKS)
    parts = [
        "`kru study tracking` trains each model to say after every symbol what state an automaton is in, on sequences "
        "of 40 steps (word problems of groups: 64). Accuracy at a length is the share of right answers in the second "
        "half of test sequences of that length; the shortest length is the one of training. The learning rate, the "
        "number of steps and the batch size are the same for all models. The weights are those with the best accuracy "
        "on validation sequences of four times the training length. Cells are means over seeds; in brackets, the "
        f"worst seed where it differs by more than one. Bold: {SOLVED:g} or more with every seed.",
        _fewest(tasks),
    ]
    for task, runs in tasks.items():
        any_run = next(iter(runs.values()))[0]
        parts += [
            f"**{TITLES[task]}** ({any_run['baseline']:.3g}% for the most frequent answer).",
            _table(runs),
        ]
    return parts


def solved(runs: Sequence[Result], length: str) -> bool:
    """Whether every seed has answers that are right often enough at a length."""
    return all(run["accuracy_at"][length] >= SOLVED for run in runs)


def draw_tracking(records: Sequence[Result], path: Path) -> list[Path]:
    """Accuracy along the test sequences of the models of one size, a panel for each task."""
    tasks = by_task(records, TRACKING_TASKS)
    figure, axes = new_figure(len(tasks), 4, (4.6, 3.8))
    for panel, (task, runs) in zip(axes, tasks.items(), strict=True):
        _draw(panel, task, runs)
    _legend(figure, axes)
    return save_figure(figure, path)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels: in the place of a panel that is not used, else in the first one."""
    shown: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    spare = [place for place in figure.axes if place not in axes]
    place = spare[0] if spare else axes[0]
    place.set_visible(True)
    if spare:
        place.set_axis_off()
    place.legend(list(shown.values()), list(shown), loc="center", frameon=bool(not spare), fontsize=11)


def _draw(panel: Axes, task: str, runs: Runs) -> None:
    for label in (label for label in MODELS if label in runs):
        curves = [run["accuracy_along"] for run in runs[label]]
        means = [fmean(values) for values in zip(*curves, strict=True)]
        look = LOOKS[label]
        panel.plot(
            [BIN * (place + 0.5) for place in range(len(means))],
            means,
            color=look.colour,
            linestyle=look.dash,
            label=look.label,
        )
    any_run = next(iter(runs.values()))[0]
    trained = min(map(int, any_run["accuracy_at"]))
    panel.axvline(trained, color="0.6", linewidth=1)
    panel.axhline(any_run["baseline"], color="0.4", linestyle=":", linewidth=1.5)
    panel.set(title=TITLES[task], xlabel="step", ylabel="accuracy, %", ylim=(0, 103))


def _fewest(tasks: dict[str, Runs]) -> str:
    """The fewest recurrent parameters with which each task is solved, at the length of training and at the longest."""
    rows = []
    for task, runs in tasks.items():
        lengths = _lengths(runs)
        cells = []
        for length in (lengths[0], lengths[-1]):
            found = [
                (recorded[0]["parameters"]["recurrent"], label)
                for label, recorded in runs.items()
                if solved(recorded, length)
            ]
            cells.append(f"{min(found)[0]:,} ({LABELS[min(found)[1]]})" if found else "none")
        seeds = {len(recorded) for recorded in runs.values()}
        rows.append([TITLES[task], *cells, "–".join(map(str, sorted({min(seeds), max(seeds)})))])
    return markdown(
        ["fewest recurrent parameters that solve", "the training length", "the longest test length", "seeds"],
        rows,
    )


def _table(runs: Runs) -> str:
    lengths = _lengths(runs)
    header = ["model", "recurrent", "parameters", *(f"T = {int(n):,}" for n in lengths), "seeds"]
    rows = []
    for label in (label for label in LABELS if label in runs):
        recorded = runs[label]
        count = recorded[0]["parameters"]
        cells = [_cell(recorded, length) for length in lengths]
        rows.append(
            [LABELS[label], f"{count['recurrent']:,}", f"{count['total']:,}", *cells, str(len(recorded))]
        )
    return markdown(header, rows)


def _cell(runs: Sequence[Result], length: str) -> str:
    """Mean and worst seed.

    >>> _cell([{"accuracy_at": {"40": 100.0}}, {"accuracy_at": {"40": 99.5}}], "40")
    '**99.8**'
    >>> _cell([{"accuracy_at": {"40": 80.0}}, {"accuracy_at": {"40": 50.0}}], "40")
    '65.0 (50.0)'
    """
    values = [run["accuracy_at"][length] for run in runs]
    text = f"{fmean(values):.1f}"
    if fmean(values) - min(values) > 1:
        text += f" ({min(values):.1f})"
    return f"**{text}**" if solved(runs, length) else text


def _lengths(runs: Runs) -> list[str]:
    return sorted(next(iter(runs.values()))[0]["accuracy_at"], key=int)
