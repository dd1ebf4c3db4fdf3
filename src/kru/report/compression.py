"""The section on compressed models, from the records of benchmarks/compression.py."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kru.report.text import markdown

TITLES = {"jsb": "JSB Chorales", "ptb": "Penn Treebank characters"}

HEADER = (
    "times fewer",
    "recurrent matrix",
    "parameters",
    "matrix fitted",
    "states fitted",
    "trained further",
    "from scratch",
)


def compression_section(folder: Path) -> str:
    """Markdown with a table for each record TASK-seedN.json in the folder; empty without any."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-seed*.json"))]
    if not records:
        return ""
    parts = [
        "## Compressing a trained LSTM",
        "The recurrent matrices of a trained LSTM replaced by sums of Kronecker products, and by matrices of low rank "
        "with at most as many parameters. Test measure, lower is better: after fitting the matrices themselves, after "
        "fitting their products with the states that occur on 20 training batches, after training that one as much "
        "further as the dense one, and for the same architecture trained from scratch for as long as the dense model.",
    ]
    for record in records:
        parts += [_paragraph(record), markdown(HEADER, [_row(row, record) for row in record["rows"]], left=2)]
    return "\n\n".join(parts)


def _paragraph(record: dict[str, Any]) -> str:
    dense, longer = record["dense"], record["dense_further"]
    return (
        f"**{TITLES.get(record['task'], record['task'])}**, {record['units']} units, {record['measure']}. The dense "
        f"model, {dense['parameters']['recurrent']:,} recurrent parameters of {dense['parameters']['total']:,}, has "
        f"{dense['test']:.3f} on test after {dense['epochs']:g} epochs ({dense['cpu_seconds']:.0f} CPU seconds); "
        f"{longer['epochs']:g} further epochs give {longer['test']:.3f}. `{record['command']}`, commit "
        f"{record['commit']}."
    )


def _row(row: dict[str, Any], record: dict[str, Any]) -> Sequence[str]:
    dense = record["dense"]["parameters"]["recurrent"]
    product = " ⊗ ".join(row["kind"].split("x")) if row["kind"] != "low-rank" else ""
    terms = f"sum of {row['rank']} " if row["rank"] > 1 else ""
    return (
        f"{dense / row['parameters']:.0f}",
        terms + product if product else f"rank {row['rank']}",
        f"{row['parameters']:,}",
        f"{row['matrix']['test']:.3f}",
        f"{row['states']['test']:.3f}",
        f"{row['further']['test']:.3f}",
        f"{row['scratch']['test']:.3f}" if "scratch" in row else "",
    )
