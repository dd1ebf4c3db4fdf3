"""Studies as text, figures and sections of the page of results."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kru.lab.report.clipping import clipping_findings, draw_clipping
from kru.lab.report.growth import draw_growth, growth_findings
from kru.lab.report.records import Result
from kru.lab.report.tracking import draw_tracking, tracking_findings
from kru.lab.report.unitary import draw_unitary, unitary_findings
from kru.lab.result import read_result
from kru.lab.studies.design import MERGED, RAISED
from kru.lab.studies.record import SPECTRUM
from kru.training.plain_json import NUMBER, Shape, mismatches


class Report(NamedTuple):
    """How a study is told: paragraphs and Markdown tables, and a figure."""

    title: str
    findings: Callable[[Sequence[Result]], list[str]]
    draw: Callable[[Sequence[Result], Path], list[Path]]


REPORTS = {
    "unitary": Report("Influence of the soft unitary constraint", unitary_findings, draw_unitary),
    "clipping": Report("Gradient clipping", clipping_findings, draw_clipping),
    "growth": Report("Growing while training", growth_findings, draw_growth),
    "tracking": Report("State tracking", tracking_findings, draw_tracking),
}


RECORD: dict[str, Shape] = {
    "task": str,
    "setting": str,
    "sequences": {"train": int},
    "spectrum": dict.fromkeys(SPECTRUM, NUMBER | None),
}
"""What is read of a record besides what every result has."""

GROWN: dict[str, Shape] = {
    "growth": [
        {"step": int, "factors": [int], "rank": int, "penalty_before": NUMBER, "penalty": NUMBER},
    ]
}
"""The same of a run that may have grown."""

TRACKED: dict[str, Shape] = {"accuracy_at": dict, "accuracy_along": [NUMBER]}
"""The same of a run of the study of state tracking."""


def read_study(folder: Path, study: str) -> list[Result]:
    """The records of a study below the folder of all studies."""
    return [_read(path, study) for path in sorted((folder / study).glob("*-seed*.json"))]


def _read(path: Path, study: str) -> Result:
    record = read_result(path)
    grows = "growth" in record or (study == "growth" and record.get("setting") in (MERGED, RAISED))
    own = GROWN if grows else TRACKED if study == "tracking" else {}
    wrong = mismatches(record, RECORD | own)
    # How far a run of the study of growth came is read off its curve; a clipped one may have none.
    if not all("valid" in point for point in record["curve"]) or (study == "growth" and not record["curve"]):
        wrong.append("curve")
    if wrong:
        raise ValueError(
            f"{path}: expected a record of the study {study}, got none or another kind of value for {', '.join(wrong)}"
        )
    return record


def study_text(study: str, records: Sequence[Result]) -> str:
    """What was found, to be read in a terminal."""
    report = REPORTS[study]
    return "\n\n".join([report.title, *report.findings(records)])


def draw_study(study: str, records: Sequence[Result], folder: Path) -> list[Path]:
    """The figure STUDY.png and STUDY.svg; nothing without records."""
    return REPORTS[study].draw(records, folder / study) if records else []


def study_sections(folder: Path, page: Path) -> list[str]:
    """The sections of a page of results in Markdown, one for each study that has records.

    Args:
        folder: of all studies, such as results/studies.
        page: the file that the sections are for, from which the figures are linked.
    """
    sections = []
    for study, report in REPORTS.items():
        records = read_study(folder, study)
        if not records:
            continue
        parts = [f"## {report.title}", *report.findings(records)]
        picture = folder / f"{study}.png"
        if picture.exists():
            parts.append(f"![{report.title}]({Path(os.path.relpath(picture, page.parent)).as_posix()})")
        sections.append("\n\n".join(parts))
    return sections
