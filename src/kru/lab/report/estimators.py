"""The sections on the estimators, from the records of four of the benchmarks."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from kru.lab.report.headline import put_between_marks
from kru.lab.report.text import markdown
from kru.training.plain_json import NUMBER, Shape, mismatches, parse_json

Row = dict[str, Any]
Record = dict[str, Any]

CLASSIFIERS = {
    "kru": "KRUClassifier",
    "gru": "GRU",
    "lstm": "LSTM",
    "minirocket": "MiniRocket",
    "dtw": "1-NN DTW",
}
FORECASTERS = {
    "naive": "last value",
    "seasonal": "value of the last season",
    "ar": "AR",
    "kru": "KRUForecaster",
}

SHAPES: dict[str, dict[str, Shape]] = {
    "classification": {
        "set": str,
        "contestant": str,
        "seed": int,
        "accuracy": NUMBER,
        "train_seconds": NUMBER,
        "values": int,
    },
    "forecasts": {
        "series": str,
        "model": str,
        "seed": int,
        "rmse": [NUMBER],
        "coverage": [NUMBER],
        "origins": int,
    },
    "spoken-digits": {
        "split": str,
        "budget": int,
        "seed": int,
        "accuracy": NUMBER,
        "cases": int,
        "parameters": int,
        "train_seconds": NUMBER,
        "c_bytes": int,
        "ram_bytes": int,
        "c_same": int,
        "c_microseconds_a_second": NUMBER,
    },
    "text": {
        "kind": str,
        "steps": int,
        "parameters": int,
        "train_seconds": NUMBER,
        "test": NUMBER,
        "bzip2": NUMBER,
        "c_bytes": int,
        "samples": [str],
    },
}
"""What is read of each row of a record."""


def read_record(path: Path) -> Record:
    """A record of `benchmarks/cells.py`."""
    try:
        record = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected a record of a benchmark ({error})") from error
    wrong = (
        mismatches(record, {"command": str, "machine": dict, "rows": list})
        if isinstance(record, dict)
        else ["rows"]
    )
    if not wrong:
        shape = SHAPES[path.stem]
        bad = [row for row in record["rows"] if not isinstance(row, dict) or mismatches(row, shape)]
        wrong = mismatches(bad[0], shape) if bad and isinstance(bad[0], dict) else ["rows"] * bool(bad)
    if wrong:
        raise ValueError(
            f"{path}: expected a record of a benchmark, got none or another kind of value for {', '.join(wrong)}"
        )
    return dict(record)


def spread(values: Sequence[float], digits: int) -> str:
    """The mean, with the standard deviation where there are several.

    >>> spread([98.0], 1), spread([97.0, 98.0, 99.0], 1)
    ('98.0', '98.0 ± 1.0')
    """
    text = f"{fmean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {stdev(values):.{digits}f}"


def _of(rows: Iterable[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def accuracy_table(record: Record) -> str:
    """Accuracy in per cent, a row for each data set."""
    rows = record["rows"]
    names = [name for name in CLASSIFIERS if _of(rows, contestant=name)]
    lines = []
    for dataset in dict.fromkeys(row["set"] for row in rows):
        cells = []
        for name in names:
            found = [100 * row["accuracy"] for row in _of(rows, set=dataset, contestant=name)]
            cells.append(spread(found, 1) if found else "")
        lines.append([dataset, *cells, str(len(_of(rows, set=dataset, contestant="kru")))])
    return markdown(["accuracy on the test set, %", *(CLASSIFIERS[name] for name in names), "seeds"], lines)


def cost_table(record: Record) -> str:
    """Size and time of the fitted models, means over seeds."""
    rows = record["rows"]
    lines = []
    for dataset in dict.fromkeys(row["set"] for row in rows):
        for name, label in CLASSIFIERS.items():
            found = _of(rows, set=dataset, contestant=name)
            if not found:
                continue
            in_c = ["", ""]
            if "c_bytes" in found[0]:
                in_c = [f"{found[0]['c_bytes']:,}", f"{fmean(row['c_microseconds'] for row in found):.1f}"]
            seconds = fmean(row["train_seconds"] for row in found)
            lines.append([dataset, label, f"{found[0]['values']:,}", f"{seconds:.1f}", *in_c])
    return markdown(["data set", "model", "values", "training, s", "bytes of C", "µs a step"], lines, left=2)


def forecast_table(record: Record) -> str:
    """Errors one and ten steps ahead, and coverage of the intervals."""
    rows = record["rows"]
    lines = []
    for series in dict.fromkeys(row["series"] for row in rows):
        for name, label in FORECASTERS.items():
            found = _of(rows, series=series, model=name)
            if not found:
                continue
            if name == "ar":
                label += f"({found[0]['order']})" + (" with trend" if found[0]["trend"] == "ct" else "")
            errors = [" ± ".join(_figures([row["rmse"][step] for row in found])) for step in (0, 1)]
            covered = ", ".join(
                f"{100 * fmean(row['coverage'][step] for row in found):.0f} %" for step in (0, 1)
            )
            lines.append([series, label, *errors, covered, str(found[0]["origins"])])
    header = ["series", "model", "one step", "ten steps", "within the 90 % interval", "origins"]
    return markdown(header, lines, left=2)


def _figures(values: Sequence[float]) -> list[str]:
    parts = [fmean(values)] + ([stdev(values)] if len(values) > 1 else [])
    return [f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in parts]


def digit_table(record: Record) -> str:
    """Accuracy on spoken digits, a row for each budget and split."""
    rows = record["rows"]
    lines = []
    for budget in dict.fromkeys(row["budget"] for row in rows):
        of_budget = _of(rows, budget=budget)
        official = _of(of_budget, split="official")
        if official:
            lines.append(_digit_row(budget, "official", [[row] for row in official]))
        others = [row for row in of_budget if row["split"] != "official"]
        speakers = dict.fromkeys(row["split"] for row in others)
        for speaker in speakers:
            lines.append(
                _digit_row(budget, f"without {speaker}", [[row] for row in _of(others, split=speaker)])
            )
        by_seed = [_of(others, seed=seed) for seed in dict.fromkeys(row["seed"] for row in others)]
        whole = [seed for seed in by_seed if len(seed) == len(speakers)]
        if len(speakers) > 1 and whole:
            lines.append(_digit_row(budget, f"all {len(speakers)} speakers", whole))
    header = (
        "at most",
        "tested with",
        "accuracy, %",
        "parameters",
        "training, s",
        "bytes of C",
        "RAM",
        "ms of CPU per second of sound",
        "as `predict`",
    )
    return markdown(header, lines, left=2)


def _digit_row(budget: int, split: str, seeds: list[list[Row]]) -> list[str]:
    """A row of means over seeds; a seed has one row, or one for each speaker."""
    rows = [row for seed in seeds for row in seed]
    cases = sum(row["cases"] for row in rows)
    return [
        f"{budget:,}",
        split,
        spread([_accuracy(seed) for seed in seeds], 1),
        f"{rows[0]['parameters']:,}",
        f"{fmean(row['train_seconds'] for row in rows):.0f}",
        f"{rows[0]['c_bytes']:,}",
        f"{rows[0]['ram_bytes']:,}",
        f"{fmean(row['c_microseconds_a_second'] for row in rows) / 1000:.1f}",
        f"{sum(row['c_same'] for row in rows):,} of {cases:,}",
    ]


def _accuracy(rows: list[Row]) -> float:
    """Of all test cases, in per cent."""
    return float(
        100 * sum(row["accuracy"] * row["cases"] for row in rows) / sum(row["cases"] for row in rows)
    )


def text_block(record: Record) -> str:
    """What a character model wrote, and its figures."""
    row = record["rows"][0]
    lines = [
        f"{row['parameters']:,} parameters, {row['train_seconds']:.0f} seconds of one core for "
        f"{row['steps']:,} steps: "
        f"{row['test']:.2f} bits per character of the topics that were kept for testing, where bzip2, "
        f"which has read the "
        f"others, takes {row['bzip2']:.2f}. The exported C has {row['c_bytes']:,} bytes. It continues "
        f"three openings, "
        "temperature 0.6:",
    ]
    return "\n\n".join([*lines, *("```text\n" + sample.strip() + "\n```" for sample in row["samples"])])


TABLES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "classification": (
        "Classification of time series",
        lambda record: accuracy_table(record) + "\n\n" + cost_table(record),
    ),
    "forecasts": ("Forecasts", forecast_table),
    "spoken-digits": ("Spoken digits", digit_table),
    "text": ("A model of text", text_block),
}
"""By the name of the record: the title of its section, and what stands in it."""

NOTES = {
    "classification": (
        "`KRUClassifier()` with its defaults on sets that come with aeon, official splits. GRU and LSTM: the same "
        "estimator with a dense layer of about as many parameters, and the same settings, which were chosen for "
        "KRU-GRU. MiniRocket reads shorter cases followed by zeros. Values: the numbers that a fitted "
        "model holds. Seconds are "
        "CPU time of one core; C is compiled with gcc, for size where bytes are given, else with -O3. "
        "Shown are means "
        "over seeds with the standard deviation; 1-NN DTW has no seed."
    ),
    "forecasts": (
        "The last fifth of each series, forecast from one origin after the other without fitting again: root mean "
        "square error one and ten steps ahead, and how often the value was within the 90 % interval. "
        "`KRUForecaster(10)` with "
        "its defaults; order and trend of AR are chosen on the training part."
    ),
    "spoken-digits": (
        "The Free Spoken Digit Dataset: the official split, and without one of the six speakers in "
        "training. Bytes and "
        "RAM include the features. The C program reads each test recording sample by sample; the last "
        "column says how "
        "often it names the digit that `predict` names."
    ),
    "text": "The topics of Python's `help()`, every tenth one kept for testing.",
}


def benchmark_sections(folder: Path) -> list[str]:
    """Markdown sections of the records that are in a folder, such as results/benchmarks."""
    sections = []
    for name, (title, table) in TABLES.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        record = read_record(path)
        commits = sorted({str(row.get("commit", "")) for row in record["rows"]})
        command = f"`{record['command']}`, commit {', '.join(commits)}; {record['machine']['processor']}."
        sections.append("\n\n".join([f"## {title}", NOTES[name], table(record), command]))
    return sections


def put_tables(page: str, folder: Path) -> str:
    """The page with the tables of all records of a folder between their marks, such as <!-- forecasts -->."""
    for name, (_, table) in TABLES.items():
        path, mark = folder / f"{name}.json", f"<!-- {name} -->"
        if mark in page and path.exists():
            page = put_between_marks(page, table(read_record(path)), mark)
    return page
