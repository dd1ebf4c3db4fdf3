"""The study of growth: small factors, a dense matrix, and what grows from the one to the other."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from kru.lab.report.figures import Axis, limits
from kru.lab.report.records import Result
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.report.tables import mean
from kru.lab.report.text import markdown
from kru.lab.report.unitary import Runs, by_task, task_title
from kru.lab.studies.design import GROWTH_TASKS, LARGE, MERGED, RAISED, SMALL, STALLS, TERMS
from kru.linalg.factors import product_text

NAMES = {
    SMALL: "small factors",
    LARGE: "one dense matrix",
    MERGED: "grown by merging",
    RAISED: "grown by rank",
}
STYLE = {
    SMALL: (COLOURS["rnn"], "-."),
    LARGE: (COLOURS["lstm"], "--"),
    MERGED: (COLOURS["kru"], "-"),
    RAISED: (COLOURS["kru-gru"], ":"),
}


def growth_findings(records: Sequence[Result]) -> list[str]:
    """Paragraphs and tables in Markdown."""
    parts = [
        f"`{_command(records)}`: the smallest factors, one dense matrix, and the small factors grown {_when()}, by "
        f"merging neighbours up to the dense matrix or by adding terms up to a sum of {TERMS} products. All else is "
        "equal, learning rates are constant and training is short. Means over seeds with the standard deviation, "
        f"commit {', '.join(sorted({run['commit'] for run in records})) or 'none yet'}."
    ]
    for task, runs in by_task(records, GROWTH_TASKS).items():
        parts += [_finding(task, runs), growth_table(runs)]
    return parts


def _command(records: Sequence[Result]) -> str:
    on_cpu = any(run.get("clock") == "cpu" for run in records)
    return "kru study growth --cpu-time" if on_cpu else "kru study growth"


def _when() -> str:
    parts = (
        f"{task}: {patience + 1} in a row not {100 * gain:g} % better than the best"
        for task, (patience, gain) in STALLS.items()
    )
    return f"when validations stall ({'; '.join(parts)})"


def growth_table(runs: Runs) -> str:
    """A row for each way: parameters, measures, and when it was as good as the small matrix at its best."""
    any_run = next(iter(runs.values()))[0]
    unit = "CPU seconds" if any_run.get("clock") == "cpu" else "seconds"
    measure = any_run["measure"]
    header = [
        "recurrent matrix",
        "recurrent parameters",
        f"valid {measure}",
        "test",
        "small's best after steps",
        f"after {unit}",
        f"{unit} in all",
        "seeds",
    ]
    rows = []
    for label in (label for label in NAMES if label in runs):
        found = runs[label]
        rows.append(
            [
                NAMES[label],
                ", ".join(sorted({f"{run['parameters']['recurrent']:,}" for run in found})),
                mean([run["valid"] for run in found]),
                mean([run["test"] for run in found]),
                _reached(runs, label, "step"),
                _reached(runs, label, "seconds"),
                f"{fmean(_last(run)['seconds'] for run in found):.0f}",
                str(len(found)),
            ]
        )
    return markdown(header, rows)


def _finding(task: str, runs: Runs) -> str:
    """One paragraph: the gap between small and large, how much of it growth closes, and at what price."""
    sentences = [f"**{task_title(task, runs)}.**"]
    for label in (MERGED, RAISED):
        if label in runs:
            sentences.append(_steps_of_growth(label, runs[label]))
    if not {SMALL, LARGE} <= set(runs):
        return " ".join(sentences)
    gap = _difference(runs, SMALL, LARGE, "step")
    sentences.append(f"At equal steps the dense matrix is {_words(gap)} the small factors.")
    for label in (label for label in (MERGED, RAISED) if label in runs):
        steps = _words(_difference(runs, LARGE, label, "step"))
        seconds = _words(_difference(runs, LARGE, label, "seconds"))
        small = _words(_difference(runs, SMALL, label, "step"))
        sentences.append(
            f"{NAMES[label].capitalize()}, it is {small} the small factors at equal steps, {steps} the dense matrix "
            f"at equal steps, and {seconds} that at equal time."
        )
    return " ".join(sentences)


def _steps_of_growth(label: str, found: Sequence[Result]) -> str:
    first = found[0]["growth"]
    if not first:
        return f"{NAMES[label].capitalize()}, nothing grew with the first seed."
    shown = "; ".join(
        f"{product_text(point['factors'], point['rank'])} "
        f"at step {point['step']:,} (penalty {point['penalty_before']:.2g} to {point['penalty']:.2g})"
        for point in first
    )
    return f"{NAMES[label].capitalize()} with the first seed: {shown}."


def draw_growth(records: Sequence[Result], path: Path) -> list[Path]:
    """Validation against steps and against time, a row for each task; dots where a matrix grew."""
    tasks = by_task(records, GROWTH_TASKS)
    figure, axes = new_figure(2 * len(tasks), 2)
    for row, (task, runs) in enumerate(tasks.items()):
        for axis, panel in zip(("step", "seconds"), axes[2 * row : 2 * row + 2], strict=True):
            _draw(panel, runs, "step" if axis == "step" else "seconds")
            panel.set_title(task_title(task, runs))
        axes[2 * row].legend()
    return save_figure(figure, path)


def _draw(axes: Axes, runs: Runs, axis: Axis) -> None:
    any_run = next(iter(runs.values()))[0]
    values: list[float] = []
    for label in (label for label in NAMES if label in runs):
        colour, dashes = STYLE[label]
        for number, run in enumerate(runs[label]):
            points = [(point[axis], point["valid"]) for point in run["curve"]]
            values += [value for _, value in points[len(points) // 10 :]]
            alpha, name = (1.0, NAMES[label]) if number == 0 else (0.35, None)
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, alpha=alpha, label=name)
            grown = {point["step"] for point in run.get("growth", [])}
            at = [(point[axis], point["valid"]) for point in run["curve"] if point["step"] in grown]
            if at:
                axes.plot(*zip(*at, strict=True), "o", color=colour, alpha=alpha)
    unit = "CPU seconds" if any_run.get("clock") == "cpu" else "seconds"
    axes.set(
        xlabel="training steps" if axis == "step" else f"{unit} of training",
        ylabel=f"validation\n{any_run['measure']}",
        ylim=limits(values, any_run["lower_is_better"]),
    )


def _best_within(run: Result, axis: Axis, bound: float) -> float:
    """The best validation until `bound` steps or seconds; the first one if that is later."""
    values = [point["valid"] for point in run["curve"] if point[axis] <= bound] or [run["curve"][0]["valid"]]
    best: float = min(values) if run["lower_is_better"] else max(values)
    return best


def _difference(runs: Runs, of: str, other: str, axis: Axis) -> tuple[float, float]:
    """By how much `other` is better than `of` when both have had as much of `axis` as the one that ended first,
    the mean over seeds, and its standard deviation, which is not a number for one seed."""
    gains = []
    for one, two in _pairs(runs, of, other):
        bound = min(_last(one)[axis], _last(two)[axis])
        gain = _best_within(one, axis, bound) - _best_within(two, axis, bound)
        gains.append(gain if one["lower_is_better"] else -gain)
    return fmean(gains or [math.nan]), stdev(gains) if len(gains) > 1 else math.nan


def _pairs(runs: Runs, one: str, other: str) -> list[tuple[Result, Result]]:
    """Runs of two settings with the same seed."""
    others = {run["seed"]: run for run in runs[other]}
    return [(run, others[run["seed"]]) for run in runs[one] if run["seed"] in others]


def _words(difference: tuple[float, float]) -> str:
    """
    >>> _words((0.1234, 0.01)), _words((-0.02, 0.005)), _words((0.003, 0.01))
    ('better by 0.12 ± 0.01 than', 'worse by 0.02 ± 0.005 than', 'no different (0.003 ± 0.01) from')
    >>> _words((-0.003, math.nan)), _words((math.nan, math.nan))
    ('worse by 0.003 (one seed) than', 'not comparable (no common seed) with')
    """
    gain, spread = difference
    if math.isnan(gain):
        return "not comparable (no common seed) with"
    size = f"{abs(gain):.2g} (one seed)" if math.isnan(spread) else f"{abs(gain):.2g} ± {spread:.1g}"
    if abs(gain) <= spread:
        return f"no different ({gain:.2g} ± {spread:.1g}) from"
    return f"{'better' if gain > 0 else 'worse'} by {size} than"


def _reached(runs: Runs, label: str, axis: Axis) -> str:
    """When a way was as good as the small matrix with the same seed at its best: the mean over seeds."""
    if SMALL not in runs:
        return ""
    times = []
    for small, run in _pairs(runs, SMALL, label):
        best = _best_within(small, "step", _last(small)["step"])
        sign = 1 if run["lower_is_better"] else -1
        when = [point[axis] for point in run["curve"] if sign * (point["valid"] - best) <= 0]
        if not when:
            return "not by all seeds"
        times.append(when[0])
    return f"{fmean(times):,.0f}" if times else ""


def _last(run: Result) -> Result:
    last: Result = run["curve"][-1]
    return last
