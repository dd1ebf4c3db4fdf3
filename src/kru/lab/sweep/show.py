"""What a sweep has found: its best trials in a table, what mattered, and how the measure depends on each field."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from kru.lab.recipes.files import command_line, recipe_from
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.report.text import columns
from kru.lab.sweep.space import parse_space
from kru.lab.sweep.sweep import DIVERGED, SETTINGS, TEST
from kru.lab.sweep.worker import brief

IMPORTANCE_FROM = 4
"""Complete trials below which nothing can be said about what mattered."""


@dataclass(frozen=True)
class Findings:
    """A sweep, read once."""

    name: str
    settings: dict[str, Any]
    trials: list[FrozenTrial]
    best: list[FrozenTrial]
    """the complete trials, the best one first"""
    importance: dict[str, float]
    """of each field, 1 in all; empty if too few trials are complete"""

    @property
    def fields(self) -> list[str]:
        return list(self.settings["space"])


def read_findings(study: optuna.Study) -> Findings:
    """What a sweep has found so far."""
    settings = study.user_attrs.get(SETTINGS)
    if settings is None:
        raise ValueError(f"sweep {study.study_name}: was not made by kru sweep")
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    highest_first = study.direction == StudyDirection.MAXIMIZE
    best = sorted(complete, key=_value, reverse=highest_first)
    enough = len(best) >= IMPORTANCE_FROM and len({trial.value for trial in best}) > 1
    importance = {}
    if enough:
        # How the best differ from the rest; of a small sweep the best five, as long as they are the minority.
        quantile = max(0.1, min(0.5, 5 / len(best)))
        importance = get_param_importances(
            study, evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile)
        )
    return Findings(study.study_name, settings, trials, best, importance)


def summary(findings: Findings, most: int) -> str:
    """How many trials there are, the best of them, and the command that trains the best again."""
    parts = [f"{findings.name}: {len(findings.trials)} trials ({_states(findings.trials)})"]
    if not findings.best:
        return parts[0]
    header = ["trial", *findings.fields, "valid", "test"]
    rows = [
        [
            str(trial.number),
            *(brief(trial.params[field]) for field in findings.fields),
            f"{trial.value:.4f}",
            f"{trial.user_attrs[TEST]:.4f}",
        ]
        for trial in findings.best[:most]
    ]
    parts.append(columns(header, rows, left=0))
    if findings.importance:
        shares = ", ".join(f"{field} {share:.0%}" for field, share in findings.importance.items())
        parts.append(f"importance: {shares}")
    parts.append(f"{findings.settings['measure']}; the best again: {best_command(findings)}")
    return "\n\n".join(parts)


def best_command(findings: Findings) -> str:
    """The `kru train` line of the best trial."""
    settings = findings.settings
    recipe = recipe_from(settings["recipe"], settings["name"], recorded=True)
    space = parse_space(settings["space"], recipe)
    return command_line(space.apply(recipe, findings.best[0].params), settings["source"])


def draw_findings(findings: Findings, folder: Path) -> list[Path]:
    """importance.png and slice.png, and the same as SVG; the first needs a few complete trials."""
    if not findings.best:
        return []
    written = []
    if findings.importance:
        figure, [axes] = new_figure(1)
        fields = list(findings.importance)[::-1]
        axes.barh(fields, [findings.importance[field] for field in fields], color=COLOURS["kru"])
        axes.set(xlabel="importance", title=f"{findings.name}: what mattered")
        written += save_figure(figure, folder / "importance")
    figure, panels = new_figure(len(findings.fields))
    for axes, field in zip(panels, findings.fields, strict=True):
        _draw_slice(axes, field, findings)
    panels[0].legend()
    return written + save_figure(figure, folder / "slice")


def _draw_slice(axes: Axes, field: str, findings: Findings) -> None:
    """The measure of each trial over the values of one field, later trials darker."""
    pruned = [
        trial
        for trial in findings.trials
        if trial.state == TrialState.PRUNED and trial.value is not None and field in trial.params
    ]
    distribution = findings.best[0].distributions[field]
    choices: list[Any] = []
    if isinstance(distribution, CategoricalDistribution):
        choices = list(distribution.choices)
        axes.set_xticks(range(len(choices)), [str(choice) for choice in choices])
        axes.set_xlim(-0.5, len(choices) - 0.5)

    def values(trials: list[FrozenTrial]) -> list[float]:
        return [choices.index(trial.params[field]) if choices else trial.params[field] for trial in trials]

    if isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log:
        _logarithmic(axes, distribution.low, distribution.high)
    order = [trial.number for trial in findings.best]
    measures = [_value(trial) for trial in findings.best]
    # Pruned trials end wherever they were; those far off would flatten all the others.
    margin = 0.1 * (max(measures) - min(measures)) or 0.1
    low, high = min(measures) - margin, max(measures) + margin
    axes.scatter(
        values(findings.best), measures, c=order, cmap="viridis_r", s=45, label="complete, later ones darker"
    )
    ends = [min(max(_value(trial), low), high) for trial in pruned]
    axes.scatter(values(pruned), ends, color="0.6", marker="x", label="pruned")
    axes.set(xlabel=field, ylabel=f"validation\n{findings.settings['measure']}")


def _logarithmic(axes: Axes, low: float, high: float) -> None:
    """A logarithmic axis over a range, labelled at every decade, and between them if there are few."""
    axes.set_xscale("log")
    axes.set_xlim(low * (low / high) ** 0.04, high * (high / low) ** 0.04)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 100 else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _states(trials: list[FrozenTrial]) -> str:
    def state(trial: FrozenTrial) -> str:
        if trial.state == TrialState.FAIL:
            return "failed"
        return "diverged" if trial.user_attrs.get(DIVERGED) else trial.state.name.lower()

    counted = Counter(map(state, trials))
    names = ("complete", "pruned", "diverged", "failed", "running", "waiting")
    return ", ".join(f"{counted[name]} {name}" for name in names if counted[name])
