"""The study of the soft unitary constraint: what was found, and the paper's figure of it."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, stdev

from matplotlib.axes import Axes

from kru.lab.report.paper import best_strengths, paper_tables
from kru.lab.report.records import Result
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.report.tables import mean
from kru.lab.report.text import markdown
from kru.lab.studies.design import EXACT, NONE, STRENGTHS, TASKS

FULL_TIMIT = 3512
"""Training utterances of the whole corpus."""

Runs = dict[str, list[Result]]
"""The runs of each setting, by its label."""

SOFT = tuple(f"{strength:.0e}" for strength in STRENGTHS)
LABELS = (NONE, *SOFT, EXACT)


def by_task(records: Sequence[Result], tasks: Sequence[str] = TASKS) -> dict[str, Runs]:
    """The records of each task and setting, tasks in this order, which is the paper's."""
    grouped: dict[str, Runs] = {}
    for task in tasks:
        for record in records:
            if record["task"] == task:
                grouped.setdefault(task, {}).setdefault(record["setting"], []).append(record)
    return grouped


def task_title(task: str, runs: Runs) -> str:
    """The data set's name; a corpus that is not the whole TIMIT is called what it is."""
    title = next(table.title for table in paper_tables() if table.task == task)
    utterances = next(iter(runs.values()))[0]["sequences"]["train"]
    if task == "timit" and utterances < FULL_TIMIT:
        return f"{title}, sample ({utterances} utterances)"
    return title


def unitary_findings(records: Sequence[Result]) -> list[str]:
    """Paragraphs and tables in Markdown."""
    parts = [
        "`kru study unitary` varies the strength of the soft unitary constraint from 1e-7 to 1e-1 with all other "
        "settings fixed, and adds the two extremes: no penalty and exactly unitary factors. Figures are for "
        "the model with the best validation measure: means over seeds with the standard deviation."
    ]
    for task, runs in by_task(records).items():
        parts += [_finding(task, runs), _table(runs)]
    return parts


def _finding(task: str, runs: Runs) -> str:
    """One paragraph: the best strength against the paper's, the two ends, the spectrum along the way."""
    any_run = next(iter(runs.values()))[0]
    soft = [label for label in SOFT if label in runs]
    sentences = [f"**{task_title(task, runs)}.**"]
    if soft:
        sign = 1 if any_run["lower_is_better"] else -1
        best = min(soft, key=lambda label: sign * _centre(runs[label]))
        sentences.append(
            f"The best strength is {_short(best)}, with a validation {any_run['measure']} of "
            f"{mean(_values(runs[best]))}; {_against_paper(f'{best_strengths()[task]:.0e}', best, runs)}"
        )
        if NONE in runs:
            sentences.append(f"Without a penalty it is {mean(_values(runs[NONE]))}.")
        if EXACT in runs:
            gain = sign * (_centre(runs[best]) - _centre(runs[EXACT]))
            judged = "better, where the paper expects worse" if gain > 0 else "worse, as the paper expects"
            noise = (
                "" if abs(gain) > _spread(runs[best], runs[EXACT]) else ", within the deviation over seeds"
            )
            sentences.append(
                f"With exactly unitary factors it is {mean(_values(runs[EXACT]))}: by {abs(gain):.2g} {judged}{noise}."
            )
        first, last = runs[soft[0]], runs[soft[-1]]
        norm, radius, condition = (
            f"the {name.replace('_', ' ')} from {_spectral(first, name):.4g} to {_spectral(last, name):.4g}"
            for name in ("spectral_norm", "spectral_radius", "condition_number")
        )
        ends = f"between the strengths {_short(soft[0])} and {_short(soft[-1])}"
        sentences.append(f"The spectrum changes {ends}: {norm}, {radius}, {condition}.")
        nearer = _spectral(last, "condition_number") < _spectral(first, "condition_number")
        sentences.append(
            f"A stronger penalty conditions W {'better, as' if nearer else 'worse, unlike'} in the paper."
        )
    return " ".join(sentences)


def _against_paper(paper: str, best: str, runs: Runs) -> str:
    """Whether the paper's best strength is ours, and if not, whether the difference is more than noise."""
    if best == paper:
        return "so it is in the paper."
    if paper not in runs:
        return f"in the paper it is {_short(paper)}, which was not run."
    gap = abs(_centre(runs[paper]) - _centre(runs[best]))
    text = f"in the paper it is {_short(paper)}, which is worse by {gap:.2g} here: "
    if min(len(runs[best]), len(runs[paper])) < 2:
        return text + "with one seed, that may be chance."
    spread = _spread(runs[best], runs[paper])
    if gap <= spread:
        return text + f"within the deviation over seeds ({spread:.2g}), so it does not contradict the paper."
    return text + f"more than the deviation over seeds ({spread:.2g}), so it disagrees with the paper."


def _spread(*settings: list[Result]) -> float:
    """The greatest standard deviation over seeds; 0 with one seed each."""
    return max(stdev(_values(found)) if len(found) > 1 else 0.0 for found in settings)


def _table(runs: Runs) -> str:
    any_run = next(iter(runs.values()))[0]
    header = ["strength", "condition number", "spectral norm", "spectral radius", any_run["measure"], "seeds"]
    rows = []
    for label in (label for label in LABELS if label in runs):
        spectra = [[run["spectrum"][key] for run in runs[label]] for key in _ROWS]
        cells = [mean(values) if None not in values else "∞" for values in spectra]
        rows.append([_short(label), *cells, mean(_values(runs[label])), str(len(runs[label]))])
    return markdown(header, rows)


_ROWS = ("condition_number", "spectral_norm", "spectral_radius")


def draw_unitary(records: Sequence[Result], path: Path) -> list[Path]:
    """Three rows (condition number; norm and radius; validation measure), a column for each task.

    Points are medians over seeds, and bars reach from the lowest to the highest seed.
    """
    tasks = by_task(records)
    figure, axes = new_figure(3 * len(tasks), len(tasks), (5.0, 3.4))
    for column, (task, runs) in enumerate(tasks.items()):
        condition, norms, valid = axes[column :: len(tasks)]
        _draw(condition, runs, "condition_number", COLOURS["lstm"], "o")
        condition.set(title=task_title(task, runs))
        values = [run["spectrum"]["condition_number"] or 1.0 for found in runs.values() for run in found]
        if max(values) > 10 * min(values):
            condition.set_yscale("log")
        _draw(norms, runs, "spectral_norm", COLOURS["kru"], "o", "spectral norm")
        _draw(norms, runs, "spectral_radius", COLOURS["rc-urnn"], "^", "spectral radius", "--")
        norms.axhline(1.0, color="0.4", linestyle=":", linewidth=1.5)
        _draw(valid, runs, "valid", COLOURS["fc-urnn"], "s")
        paper = LABELS.index(f"{best_strengths()[task]:.0e}")
        valid.axvline(paper, color=COLOURS["kru-gru"], linestyle="-.", label="paper's best")
        valid.set(xlabel="strength of the penalty")
        if column == 0:
            condition.set_ylabel("condition number of W")
            norms.legend(fontsize=11)
            valid.legend(fontsize=11)
        valid.set_ylabel(f"validation\n{next(iter(runs.values()))[0]['measure']}", fontsize=11)
    return save_figure(figure, path)


def _draw(
    axes: Axes, runs: Runs, key: str, colour: str, marker: str, label: str | None = None, dash: str = "-"
) -> None:
    """A line through the strengths; the two ends, which have no place on its axis, as points beside it."""
    for part, style in ((SOFT, dash), ((NONE,), ""), ((EXACT,), "")):
        places, centres, below, above = [], [], [], []
        for name in (name for name in part if name in runs):
            values = [run["valid"] if key == "valid" else run["spectrum"][key] for run in runs[name]]
            values = [value for value in values if value is not None]
            if values:
                centre = median(values)
                places.append(LABELS.index(name))
                centres.append(centre)
                below.append(centre - min(values))
                above.append(max(values) - centre)
        axes.errorbar(
            places,
            centres,
            yerr=[below, above],
            color=colour,
            marker=marker,
            linestyle=style,
            capsize=4,
            label=label if part is SOFT else None,
        )
    axes.set_xticks(range(len(LABELS)), [_tick(name) for name in LABELS], fontsize=11)


def _tick(label: str) -> str:
    return label if label in (NONE, EXACT) else f"$10^{{{int(label.partition('e')[2])}}}$"


def _short(label: str) -> str:
    """
    >>> _short("1e-07"), _short("none")
    ('1e-7', 'none')
    """
    return label.replace("e-0", "e-")


def _values(runs: list[Result]) -> list[float]:
    return [run["valid"] for run in runs]


def _centre(runs: list[Result]) -> float:
    return fmean(_values(runs))


def _spectral(runs: list[Result], name: str) -> float:
    """The mean over seeds; a W without full rank has an infinite condition number."""
    values = [run["spectrum"][name] for run in runs]
    return float("inf") if None in values else fmean(values)
