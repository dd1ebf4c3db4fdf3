"""Studies as text, figures and sections of the page of results."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kru.report.clipping import clipping_findings, draw_clipping
from kru.report.growth import draw_growth, growth_findings
from kru.report.records import Result
from kru.report.unitary import draw_unitary, unitary_findings
from kru.training.result import read_result


class Report(NamedTuple):
    """How a study is told: paragraphs and Markdown tables, and a figure."""

    title: str
    findings: Callable[[Sequence[Result]], list[str]]
    draw: Callable[[Sequence[Result], Path], list[Path]]


REPORTS = {
    "unitary": Report("Influence of the soft unitary constraint", unitary_findings, draw_unitary),
    "clipping": Report("Gradient clipping", clipping_findings, draw_clipping),
    "growth": Report("Growing while training", growth_findings, draw_growth),
}


def read_study(folder: Path, study: str) -> list[Result]:
    """The records of a study below the folder of all studies."""
    return [read_result(path) for path in sorted((folder / study).glob("*-seed*.json"))]


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
