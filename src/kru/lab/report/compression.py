"""The section on compressed models and its figure, from the records of benchmarks/compression.py."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from kru.lab.report.figures import limits
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.report.text import markdown
from kru.linalg.factors import product_text
from kru.training.plain_json import NUMBER, Shape, mismatches, parse_json

TITLES = {"jsb": "JSB Chorales", "ptb": "Penn Treebank characters"}

HEADER = (
    "times fewer",
    "recurrent matrix",
    "parameters",
    "fitted to W",
    "fitted to states",
    "fine-tuned",
    "from scratch",
)

KIND_COLOURS = (COLOURS["kru"], COLOURS["kru-lstm"], COLOURS["rnn"])
"""Of the kinds of matrices in a record, in their order: two factors, three, low rank."""

_TEST: dict[str, Shape] = {"test": NUMBER}
_ROW: dict[str, Shape] = {
    "ratio": int,
    "kind": str,
    "rank": int,
    "parameters": int,
    "matrix": _TEST,
    "states": _TEST,
    "further": _TEST,
}
SHAPE: dict[str, Shape] = {
    "task": str,
    "command": str,
    "commit": str,
    "measure": str,
    "units": int,
    "dense": {
        "test": NUMBER,
        "epochs": NUMBER,
        "cpu_seconds": NUMBER,
        "parameters": {"total": int, "recurrent": int},
    },
    "dense_further": {"test": NUMBER, "epochs": NUMBER},
    "rows": [_ROW],
    "curve": list,
}
"""What is read of a record."""

Record = dict[str, Any]


def compression_section(folder: Path, page: Path) -> str:
    """Markdown with a table for each record TASK-seedN.json in the folder; empty without any.

    Args:
        folder: of the records, such as results/studies/compress; the figure is beside it, results/studies/compress.png.
        page: the file that the section is for, from which the figure is linked.
    """
    records = read_records(folder)
    if not records:
        return ""
    parts = [
        "## Compressing a trained LSTM",
        "The recurrent matrices of a trained LSTM are replaced by sums of Kronecker products or by matrices of low "
        "rank, each as large as possible with at least 10, 25 and 50 times fewer parameters. The figures are test "
        'measures, lower is better. "Fitted to W": the matrices themselves are approximated. "Fitted to states": their '
        'products with the states on 20 training batches are approximated. "Fine-tuned": training continues from the '
        'latter, for as many epochs as the dense model was continued. "From scratch": the same architecture, trained '
        "for as long as the dense model.",
    ]
    for record in records:
        parts += [_paragraph(record), markdown(HEADER, [_row(row, record) for row in record["rows"]], left=2)]
    picture = folder.with_suffix(".png")
    if picture.exists():
        parts.append(f"![Compressed models]({Path(os.path.relpath(picture, page.parent)).as_posix()})")
    return "\n\n".join(parts)


def read_records(folder: Path) -> list[Record]:
    return [_read(path) for path in sorted(folder.glob("*-seed*.json"))]


def _read(path: Path) -> Record:
    try:
        record = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected a record of benchmarks/compression.py ({error})") from error
    wrong = mismatches(record, SHAPE) if isinstance(record, dict) else list(SHAPE)
    if "rows" not in wrong and not all(map(_is_row, record["rows"])):
        wrong.append("rows")
    if wrong:
        raise ValueError(
            f"{path}: expected a record of benchmarks/compression.py, got none or another kind of value for "
            f"{', '.join(wrong)}"
        )
    return dict(record)


def _is_row(row: Record) -> bool:
    return (
        row["parameters"] > 0
        and re.fullmatch(r"low-rank|[0-9]+(x[0-9]+)*", row["kind"]) is not None
        and not ("scratch" in row and mismatches(row, {"scratch": _TEST}))
    )


def draw_compression(folder: Path) -> list[Path]:
    """The validation measure over the steps of training, a panel for each record; beside the folder, as PNG and SVG.

    Shows the dense model, and compressed models of about one size: trained from scratch, and fine-tuned after the
    compression.
    """
    records = read_records(folder)
    if not records:
        return []
    figure, axes = new_figure(len(records), in_a_row=1, size=(10.0, 4.4))
    for panel, record in zip(axes, records, strict=True):
        _draw(panel, record)
    return save_figure(figure, folder)


def _draw(axes: Axes, record: Record) -> None:
    ratio = drawn_ratio(record)
    rows = [row for row in record["rows"] if row["ratio"] == ratio]
    lines = [("dense", record["curve"], COLOURS["lstm"], "--")]
    for row, colour in zip(rows, KIND_COLOURS, strict=False):
        lines.append((f"{_matrix(row)}, compressed", row["further"]["curve"], colour, "-"))
        if "scratch" in row:
            lines.append((f"{_matrix(row)}, from scratch", row["scratch"]["curve"], colour, ":"))
    values: list[float] = []
    for name, curve, colour, dashes in lines:
        # A curve of few points, such as one validation, would not be seen as a line.
        marker = "o" if len(curve) < 5 else None
        axes.plot(*zip(*curve, strict=True), color=colour, linestyle=dashes, marker=marker, label=name)
        values += [value for _, value in curve[len(curve) // 10 :]]
    axes.set(
        title=f"{_title(record)}, about {ratio} times fewer",
        xlabel="training steps",
        ylabel=f"validation\n{record['measure']}",
        ylim=limits(values, lower_is_better=True),
    )
    # Seven lines would hide the curves.
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def drawn_ratio(record: Record) -> int:
    """The middle one of the sizes that were also trained from scratch, else of all."""
    rows = [row for row in record["rows"] if "scratch" in row] or record["rows"]
    ratios: list[int] = sorted({row["ratio"] for row in rows})
    return ratios[len(ratios) // 2]


def _title(record: Record) -> str:
    task: str = record["task"]
    return TITLES.get(task, task)


def _paragraph(record: Record) -> str:
    dense, longer = record["dense"], record["dense_further"]
    return (
        f"**{_title(record)}**, {record['units']} units, {record['measure']}. The dense "
        f"model, {dense['parameters']['recurrent']:,} recurrent parameters of {dense['parameters']['total']:,}, has "
        f"{dense['test']:.3f} on the test set after {dense['epochs']:g} epochs ({dense['cpu_seconds']:.0f} CPU "
        f"seconds); {longer['epochs']:g} more epochs give {longer['test']:.3f}. `{record['command']}`, commit "
        f"{record['commit']}."
    )


def _row(row: Record, record: Record) -> Sequence[str]:
    dense = record["dense"]["parameters"]["recurrent"]
    return (
        f"{dense / row['parameters']:.0f}",
        _matrix(row),
        f"{row['parameters']:,}",
        f"{row['matrix']['test']:.3f}",
        f"{row['states']['test']:.3f}",
        f"{row['further']['test']:.3f}",
        f"{row['scratch']['test']:.3f}" if "scratch" in row else "",
    )


def _matrix(row: Record) -> str:
    if row["kind"] == "low-rank":
        return f"rank {row['rank']}"
    return product_text([int(size) for size in row["kind"].split("x")], row["rank"])
