"""The short table of a README: what the Kronecker models reach, beside the paper's figures."""

from collections.abc import Sequence
from statistics import fmean

from kru.lab.report.paper import PaperRow, PaperTable, paper_tables
from kru.lab.report.records import Result, by_recipe
from kru.lab.report.style import LABELS
from kru.lab.report.tables import mean
from kru.lab.report.text import markdown

HEADER = ("task", "model", "parameters", "recurrent", "test", "paper", "minutes", "seeds")
MODELS = ("kru", "kru-further", "kru-lstm", "kru-gru")
MARK = "<!-- results -->"


def headline(results: Sequence[Result]) -> str:
    """A Markdown table of the recorded Kronecker models, in the order of the paper's tables."""
    grouped = by_recipe(results)
    rows = [
        _row(table, row, grouped[f"{table.task}-{row.model}"])
        for table in paper_tables()
        for row in table.rows
        if row.model in MODELS and f"{table.task}-{row.model}" in grouped
    ]
    return markdown(HEADER, rows, left=2)


def _row(table: PaperTable, row: PaperRow, runs: Sequence[Result]) -> list[str]:
    count = runs[0]["parameters"]
    return [
        f"{table.title}: {runs[0]['measure']}",
        LABELS[row.model],
        f"{count['total']:,}",
        f"{count['recurrent']:,}",
        mean([run["test"] for run in runs]),
        row.test,
        f"{fmean(run['wall_seconds'] for run in runs) / 60:.1f}",
        str(len(runs)),
    ]


def put_between_marks(page: str, table: str, mark: str = MARK) -> str:
    """The page with `table` in place of what stood between its two marks.

    >>> put_between_marks("a\\n<!-- results -->\\nold\\n<!-- results -->\\nb\\n", "new")
    'a\\n<!-- results -->\\nnew\\n<!-- results -->\\nb\\n'
    """
    parts = page.split(mark)
    if len(parts) != 3:
        raise ValueError(f"headline: expected a page with {mark} twice, got it {len(parts) - 1} times")
    return f"{mark}\n{table}\n{mark}".join((parts[0], parts[2]))
