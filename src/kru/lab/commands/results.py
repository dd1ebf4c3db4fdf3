"""`kru results`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kru.lab.cli import parse
from kru.lab.report.compression import compression_section
from kru.lab.report.estimators import benchmark_sections, put_tables
from kru.lab.report.headline import headline, put_between_marks
from kru.lab.report.own import own_tables
from kru.lab.report.records import read_results
from kru.lab.report.studies import study_sections
from kru.lab.report.tables import (
    GENERATED_SPEECH,
    expect_targets,
    generated_speech_table,
    make_tables,
    report,
)
from kru.training.files import write_atomically


@dataclass(frozen=True)
class Options:
    """Print tables of recorded runs: the paper's tables, with our figures next to them, and one per other task."""

    targets: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """tables of the paper to show: copy, adding, mnist, ptb, music, timit; default: all tables with runs"""
    results: Path = Path("results")
    """folder of recorded results (TASK/RECIPE-seedN.json), or of runs; runs on generated speech are in its
    subfolder espeak"""
    out: Path | None = None
    """also write a Markdown page, such as RESULTS.md, with studies, compressed models and the figures in
    results/figures"""
    headline: Path | None = None
    """also write the short table of the Kronecker models between the two marks <!-- results --> of this page"""
    tables: Path | None = None
    """also write the tables of the estimators' benchmarks between their marks on this page"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "results", arguments)
    expect_targets(options.targets)
    results = read_results(options.results)
    tables = make_tables(results, options.targets)
    if results and not options.targets:
        tables = [table for table in tables if table.runs] + own_tables(results)
    speech = options.results / GENERATED_SPEECH
    if speech.is_dir() and (not options.targets or "timit" in options.targets):
        tables.append(generated_speech_table(read_results(speech)))
    pages: dict[Path, str] = {}
    if options.out is not None:
        pictures = sorted((options.results / "figures").glob("*.png"))
        beside = [Path(os.path.relpath(picture, options.out.parent)) for picture in pictures]
        sections = study_sections(options.results / "studies", options.out)
        sections += filter(None, [compression_section(options.results / "studies" / "compress", options.out)])
        sections += benchmark_sections(options.results / "benchmarks")
        pages[options.out] = report(tables, beside, sections)
    if options.headline is not None:
        pages[options.headline] = put_between_marks(_page(options.headline, "headline"), headline(results))
    if options.tables is not None:
        pages[options.tables] = put_tables(_page(options.tables, "tables"), options.results / "benchmarks")
    # Errors in any page are raised before anything is written or printed.
    for path, page in pages.items():
        write_atomically(path, page.encode())
    print("\n\n".join(table.plain() for table in tables))
    return 0


def _page(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{option}: expected a page in UTF-8, got {path} ({error})") from error
