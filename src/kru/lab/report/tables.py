"""The paper's tables with our figures beside the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from kru.lab.report.paper import PaperRow, PaperTable, paper_tables
from kru.lab.report.records import Result, by_recipe
from kru.lab.report.style import LABELS
from kru.lab.report.text import columns, markdown
from kru.lab.spelling import expect_known

GENERATED_SPEECH = "espeak"
"""The folder in that of the results for runs on a corpus that `kru data generate` wrote."""

HEADER = (
    "model",
    "units",
    "parameters",
    "recurrent",
    "paper: parameters",
    "recurrent",
    "paper",
    "valid",
    "test",
    "steps",
    "minutes",
    "seeds",
)


@dataclass(frozen=True)
class Table:
    """A table ready to be printed; `runs` are the results behind it."""

    title: str
    note: str
    rows: list[list[str]]
    runs: list[Result]
    header: Sequence[str] = HEADER

    def plain(self) -> str:
        return f"{self.title}\n{self.note}\n\n{columns(self.header, self.rows)}"

    def markdown(self) -> str:
        return f"## {self.title}\n\n{self.note}\n\n{markdown(self.header, self.rows)}"


def expect_targets(targets: Sequence[str]) -> None:
    """Raise if the paper has no table of one of these."""
    for target in targets:
        expect_known("target", target, dict.fromkeys(table.target for table in paper_tables()))


def make_tables(results: Sequence[Result], targets: Sequence[str] = ()) -> list[Table]:
    """The tables of the named targets, all for none, rows without a result of ours included."""
    expect_targets(targets)
    grouped = by_recipe(results)
    chosen = [table for table in paper_tables() if not targets or table.target in targets]
    return [_table(table, grouped) for table in chosen]


def generated_speech_table(results: Sequence[Result]) -> Table:
    """The table of TIMIT for runs on generated speech."""
    (table,) = make_tables(results, ["timit"])
    note = "Frame accuracy in per cent on a corpus that `kru data generate` wrote; the paper's figures are of TIMIT."
    return replace(table, title="TIMIT frames, generated speech", note=note)


def _table(paper: PaperTable, grouped: dict[str, list[Result]]) -> Table:
    models = {row.model for row in paper.rows}
    rows = list(paper.rows)
    rows += [
        PaperRow(model) for model in LABELS if model not in models and f"{paper.task}-{model}" in grouped
    ]
    shown, runs = [], []
    for row in rows:
        ours = grouped.get(f"{paper.task}-{row.model}", [])
        shown.append(_row(row, ours))
        runs += ours
    note = paper.note
    if any(row.train for row in paper.rows):
        note += " In the column of the paper: training / test."
    elif any(row.valid for row in paper.rows):
        note += " In the column of the paper: validation / test."
    return Table(paper.title, note, shown, runs)


def _row(row: PaperRow, ours: list[Result]) -> list[str]:
    label = LABELS.get(row.model, row.model)
    units = "" if row.units is None else str(row.units)
    quoted = " / ".join(part for part in (row.train, row.valid, row.test) if part)
    approximate = [f"~{value}" if value else "" for value in (row.total, row.recurrent)]
    if not ours:
        return [label, units, "", "", *approximate, quoted, *[""] * 5]
    count = ours[0]["parameters"]
    return [
        label,
        units,
        f"{count['total']:,}",
        f"{count['recurrent']:,}",
        *approximate,
        quoted,
        mean([result["valid"] for result in ours]),
        mean([result["test"] for result in ours]),
        f"{fmean(result['steps'] for result in ours):,.0f}",
        f"{fmean(result['wall_seconds'] for result in ours) / 60:.1f}",
        str(len(ours)),
    ]


def mean(values: Sequence[float]) -> str:
    """The mean over seeds, with the standard deviation where there are several.

    >>> mean([8.5]), mean([8.0, 9.0, 10.0]), mean([0.000123])
    ('8.500', '9.000 ± 1.000', '0.000123')
    """
    centre = fmean(values)
    digits = "{:.3f}" if abs(centre) >= 0.1 else "{:.3g}"
    spread = f" ± {digits.format(stdev(values))}" if len(values) > 1 else ""
    return digits.format(centre) + spread


def report(tables: Sequence[Table], figures: Sequence[Path] = (), sections: Sequence[str] = ()) -> str:
    """A page in Markdown: the tables, further sections, the figures, and the command behind every figure."""
    parts = [
        "# Results",
        "Written by `kru results` from the recorded runs. Parameters, valid, test, steps and minutes are "
        "ours, means over seeds with the standard deviation; the other columns quote the paper. A complex "
        "parameter counts as two. The test figure is that of the model with the best validation measure, "
        "taken once; that of every seed stands under Commands.",
        *(table.markdown() for table in tables),
        *sections,
    ]
    if figures:
        parts += ["## Figures", *(f"![{path.stem}]({path.as_posix()})" for path in figures)]
    runs = [result for table in tables for result in table.runs]
    if runs:
        parts.append("## Commands")
        # Of every seed: a mean hides that one solves the task and two do not.
        header = ("command", "commit", "stopped by", "test", "minutes")
        lines = [
            (
                f"`{run['command']}`",
                run["commit"],
                run["stopped"],
                mean([run["test"]]),
                f"{run['wall_seconds'] / 60:.1f}",
            )
            for run in runs
        ]
        parts.append(markdown(header, lines, left=3))
        machines = sorted({_machine(run) for run in runs})
        parts.append("Measured on: " + "; ".join(machines) + ".")
    return "\n\n".join(parts) + "\n"


def _machine(result: Result) -> str:
    machine = result["machine"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"torch {machine['torch']}"
    )
