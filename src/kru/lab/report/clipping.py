"""The study of gradient clipping: runs that diverge with and without it and the soft unitary constraint."""

import math
from collections.abc import Sequence
from pathlib import Path

from kru.lab.report.records import Result
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.report.tables import mean
from kru.lab.report.text import markdown
from kru.lab.report.unitary import Runs, by_task, task_title
from kru.lab.studies.design import GUARDS, RATES, clipping_label

COLOUR = dict(zip(GUARDS, (COLOURS["rnn"], COLOURS["lstm"], COLOURS["kru"], COLOURS["kru-gru"]), strict=True))


def diverged(record: Result) -> bool:
    """Whether a run ended with a loss that is not finite, or worse than a constant prediction."""
    validations = [point["valid"] for point in record["curve"]]
    if record["stopped"] == "diverged" or not validations or not math.isfinite(validations[-1]):
        return True
    better = validations[-1] < record["baseline"]
    return better is not record["lower_is_better"]


def clipping_findings(records: Sequence[Result]) -> list[str]:
    """Paragraphs and tables in Markdown."""
    parts = [
        "`kru study clipping` trains factors and other weights at the same learning rate: 1, 10 and 100 times the "
        "learning rate of the study above. Gradients are clipped to norm 1 or not clipped; the penalty is 0.1 or "
        "absent. A run counts as diverged if its loss is no longer finite or it ends worse than a constant "
        "prediction. The paper says that the penalty makes clipping unnecessary."
    ]
    tasks = by_task(records)
    in_all = {guard: [run for runs in tasks.values() for run in _runs(runs, guard)] for guard in GUARDS}
    parts.append(_verdict(in_all))
    for task, runs in tasks.items():
        total = {guard: _runs(runs, guard) for guard in GUARDS}
        parts.append(f"**{task_title(task, runs)}.** Diverged: {_counts(total)}.")
        parts.append(_table(runs))
    return parts


def _verdict(in_all: Runs) -> str:
    """How many runs diverged in all, and whether the penalty does what clipping does."""
    text = f"Diverged runs: {_counts(in_all)}."
    if not in_all["penalty"] or not in_all["clipping"]:
        return text
    shares = {guard: sum(map(diverged, found)) / len(found) for guard, found in in_all.items() if found}
    if shares["penalty"] <= shares["clipping"]:
        return f"{text} The penalty alone keeps at least as many runs as clipping alone, as the paper says."
    return f"{text} The penalty alone keeps fewer runs than clipping alone, unlike in the paper."


def draw_clipping(records: Sequence[Result], path: Path) -> list[Path]:
    """How many runs diverged, for each rate and guard, a panel for each task."""
    tasks = by_task(records)
    figure, axes = new_figure(len(tasks), len(tasks), (5.0, 3.6))
    width = 0.8 / len(GUARDS)
    for panel, (task, runs) in zip(axes, tasks.items(), strict=True):
        for number, guard in enumerate(GUARDS):
            shares = []
            for times in RATES:
                found = runs.get(clipping_label(times, guard), [])
                shares.append(100 * sum(map(diverged, found)) / max(len(found), 1))
            places = [place + (number - 1.5) * width for place in range(len(RATES))]
            panel.bar(places, shares, width, color=COLOUR[guard], label=guard)
        panel.set_xticks(range(len(RATES)), [f"× {times}" for times in RATES])
        panel.set(title=task_title(task, runs), xlabel="times the learning rate", ylim=(0, 105))
    axes[0].set_ylabel("runs that diverged, %")
    axes[0].legend(title="guard")
    return save_figure(figure, path)


def _table(runs: Runs) -> str:
    any_run = next(iter(runs.values()))[0]
    header = ["rate", "guard", "diverged", any_run["measure"], "spectral norm"]
    rows = []
    for times in RATES:
        for guard in GUARDS:
            found = runs.get(clipping_label(times, guard))
            if found:
                valid = mean([run["valid"] for run in found])
                norms = [run["spectrum"]["spectral_norm"] for run in found]
                norm = mean(norms) if None not in norms else "∞"
                rows.append([f"× {times}", guard, _count(found), valid, norm])
    return markdown(header, rows, left=2)


def _runs(runs: Runs, guard: str) -> list[Result]:
    return [run for times in RATES for run in runs.get(clipping_label(times, guard), [])]


def _counts(guards: Runs) -> str:
    return ", ".join(f"{guard} {_count(found)}" for guard, found in guards.items() if found)


def _count(found: Sequence[Result]) -> str:
    return f"{sum(map(diverged, found))} of {len(found)}"
