"""Sequences from files: CSV, Parquet, npz, ts, text, folders of WAV files. Nothing that is read can run code."""

import math
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kru.estimators.data import CASE_COLUMNS, TIME_COLUMNS
from kru.sound import read_wav

Values = NDArray[np.float64]
_format: Any = np.lib.format

LARGEST = 2**28
"""Bytes that any archive or table may unpack to, and ..."""
RATIO = 100
"""... how many times its own size a larger one may."""
CELLS = 2**26
"""Cells of a Parquet file, which can repeat a value at no cost."""
_DAMAGED = (
    ValueError,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    SyntaxError,
    TypeError,
    LookupError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What zipfile and numpy were seen to raise on damaged archives."""


class Data(NamedTuple):
    """Sequences and their targets, for `fit(X, y)`.

    Attributes:
        X: a form that `kru.estimators.data.read_cases` takes.
        y: (cases,), or None if the file has none.
        names: what the cases are called.
        channels: the columns of a long table that hold the channels; none for other forms.
        rate: of sounds, samples in a second; None for other forms.
    """

    X: Any
    y: NDArray[Any] | None
    names: list[str]
    channels: tuple[str, ...] = ()
    rate: int | None = None


def read(
    path: str | Path,
    *,
    target: str | None = None,
    case: str | None = None,
    time: str | None = None,
    label_pattern: str | None = None,
    channels: Sequence[str] = (),
    needs_target: bool = True,
) -> Data:
    """Sequences in a file, whose form its ending tells, or in a folder of WAV files.

    Args:
        target: the column (CSV, Parquet) or array (npz, "y" by default) with the targets.
        case, time: the columns of a long table; found as "case" and "time" by default. A table without them has one row
            for each case and the steps of one channel as columns.
        label_pattern: for WAV files: a regular expression whose first group, found in the name of a file, is its label;
            by default the label is the name of the folder that the file is in.
        channels: the columns of a table to read, in this order; all others by default.
        needs_target: whether a target that is missing is an error; if not, such data has none.

    Raises:
        ValueError: one line that says which file and row, what came and what was expected.
    """
    path = Path(path)
    if path.is_dir():
        return read_wav_folder(path, label_pattern, needs_target=needs_target)
    if not path.exists():
        raise ValueError(f"{path}: expected a file or a folder, got nothing there")
    readers: dict[str, Callable[[], Data]] = {
        ".csv": lambda: read_table(path, target, case, time, channels, needs_target=needs_target),
        ".parquet": lambda: read_table(path, target, case, time, channels, needs_target=needs_target),
        ".npz": lambda: read_npz(path, target or "y"),
        ".ts": lambda: read_ts(path),
        ".wav": lambda: read_wav_file(path, label_pattern, needs_target=needs_target),
    }
    if path.suffix.lower() not in readers:
        known = ", ".join(readers)
        raise ValueError(
            f"{path}: expected a file that ends in {known}, or a folder of WAV files, got {path.suffix!r}"
        )
    return readers[path.suffix.lower()]()


def read_text(path: str | Path) -> str:
    """A text in UTF-8, with its line ends as newlines."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path}: expected UTF-8, got byte {error.object[error.start]:#04x} at {error.start}; symbols="bytes" '
            "takes any file"
        ) from error


def read_frame(path: Path) -> Any:
    """A CSV or Parquet file as a pandas frame whose columns are strings."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: pandas is not installed; run pip install 'kru[estimators]'") from error
    try:
        frame = pd.read_csv(path, **_dialect(path)) if path.suffix.lower() == ".csv" else _read_parquet(path)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected UTF-8, got byte {error.object[error.start]:#04x} (iconv converts other encodings)"
        ) from error
    except (
        ValueError,
        OSError,
        ImportError,
        RuntimeError,
        TypeError,
        LookupError,
        NotImplementedError,
    ) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: expected a table ({reason})") from error
    for column in frame.columns[frame.dtypes.map(lambda dtype: dtype.kind) == "O"]:
        lists = {type(value) for value in frame[column] if not isinstance(value, Hashable)}
        if lists:
            raise ValueError(
                f"{path}: column {str(column)!r}: expected numbers, strings or times, got {lists.pop().__name__}"
            )
    if len(frame) == 0:
        raise ValueError(f"{path}: expected at least one row, got none")
    frame.columns = [str(column) for column in frame.columns]
    return frame


def _read_parquet(path: Path) -> Any:
    """A Parquet file of at most `CELLS` cells, as a frame."""
    import pandas as pd
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        cells = file.metadata.num_rows * file.metadata.num_columns
        size = sum(file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups))
    if cells > CELLS or size > max(LARGEST, RATIO * path.stat().st_size):
        raise ValueError(
            f"it has {cells:,} cells in {size:,} bytes, expected at most {CELLS:,} in {LARGEST:,}"
        )
    return pd.read_parquet(path)


def _dialect(path: Path) -> dict[str, str]:
    """How a CSV file is separated, by its first lines: commas, or semicolons or tabs where there are no commas.

    Between semicolons a comma is the decimal point of a spreadsheet in much of Europe.
    """
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = [file.readline(100_000) for _ in range(20)]
    for separator in (";", "\t"):
        if separator in lines[0] and "," not in lines[0]:
            commas = any(re.search(r"(^|[;\t])-?\d+,\d+([;\t\r\n]|$)", line) for line in lines[1:])
            return {"sep": separator, "decimal": "," if commas else "."}
    return {}


def expect_numbers(path: Path, frame: Any, columns: Sequence[str]) -> None:
    """Make columns of a frame float64, empty cells NaN, or say which row has something else."""
    import pandas as pd

    for name in columns:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        wrong = np.flatnonzero(numbers.isna() & frame[name].notna())
        if len(wrong):
            found = frame[name].iloc[wrong[0]]
            advice = ""
            if numbers.isna().all():
                advice = " (--case and --time name such columns, --channels those to read)"
            raise ValueError(
                f"{path}: row {row_number(path, wrong[0])}, column {name!r}: expected a number, got {found!r}{advice}"
            )
        frame[name] = numbers.astype(np.float64)


def read_table(
    path: Path,
    target: str | None,
    case: str | None = None,
    time: str | None = None,
    channels: Sequence[str] = (),
    *,
    needs_target: bool = True,
) -> Data:
    """A CSV or Parquet file in long form (case, time, channels, target) or with one row for each case."""
    frame = read_frame(path)
    columns = list(frame.columns)
    if not needs_target and (target not in columns or frame[target].isna().any()):
        frame = frame.drop(columns=[target], errors="ignore")
        columns, target = list(frame.columns), None
    for name in (target, case, time, *channels):
        if name is not None and name not in columns:
            raise ValueError(f"{path}: expected a column {name!r}, got {', '.join(columns)}")
    case = case or next((name for name in CASE_COLUMNS if name in columns), None)
    time = time or next((name for name in TIME_COLUMNS if name in columns), None)
    values = list(channels) or [name for name in columns if name not in (target, case, time)]
    expect_numbers(path, frame, values)
    if not values:
        raise ValueError(f"{path}: expected at least one column of values, got {', '.join(columns)}")
    if target is not None and frame[target].isna().any():
        first = int(np.flatnonzero(frame[target].isna())[0])
        raise ValueError(
            f"{path}: row {row_number(path, first)}, column {target!r}: expected a target, got nothing"
        )
    if case is None or time is None:
        y = None if target is None else np.asarray(frame[target].tolist())
        rows = [str(row_number(path, index)) for index in range(len(frame))]
        return Data(frame[values].to_numpy(), y, rows if case is None else [str(n) for n in frame[case]])
    names = frame[case].drop_duplicates().tolist()
    y = None
    if target is not None:
        groups = frame.groupby(case, sort=False)[target]
        several = groups.nunique()
        if (several > 1).any():
            name = several.index[int((several > 1).to_numpy().argmax())]
            raise ValueError(
                f"{path}: case {name}: expected one target, got {several[name]} in column {target!r}"
            )
        y = np.asarray(groups.first().loc[names].tolist())
    long = frame[[case, time, *values]].rename(columns={case: "case", time: "time"})
    return Data(long, y, [str(name) for name in names], tuple(values))


def read_npz(path: Path, target: str = "y") -> Data:
    """Arrays "X" (cases, channels, time) or (cases, time) and, if there is one, the target."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            _expect_archive(archive, path.stat().st_size)
            for info in archive.infolist():
                with archive.open(info) as member:
                    _expect_array(member, info)
                with archive.open(info) as member:
                    arrays[info.filename.removesuffix(".npy")] = _format.read_array(
                        member, allow_pickle=False
                    )
    except _DAMAGED as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: expected arrays of numbers without pickled objects ({reason})") from error
    if "X" not in arrays:
        raise ValueError(f"{path}: expected an array X, got {', '.join(arrays) or 'none'}")
    X, y = arrays["X"], arrays.get(target)
    if X.ndim not in (2, 3):
        raise ValueError(f"{path}: X: expected (cases, channels, time) or (cases, time), got shape {X.shape}")
    for name, array in (("X", X), (target, y)):
        if array is not None and (array.dtype.kind not in "biufUS" or array.dtype.names):
            raise ValueError(f"{path}: {name}: expected numbers or strings, got {array.dtype}")
    if X.dtype.kind in "US":
        raise ValueError(f"{path}: X: expected numbers, got {X.dtype}")
    if y is not None and (y.ndim == 0 or len(y) != len(X)):
        raise ValueError(
            f"{path}: {target}: expected {len(X)} targets, one for each case, got {len(y) if y.ndim else 'one number'}"
        )
    return Data(X, y, [str(index) for index in range(len(X))])


def _expect_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Raise if an archive is packed in a way that can hide its size, or unpacks to more than `LARGEST` allows."""
    for info in archive.infolist():
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} is packed by method {info.compress_type}")
    unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > max(LARGEST, RATIO * size):
        raise ValueError(f"{size:,} bytes unpack to {unpacked:,}")


def _expect_array(member: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Raise if the header of a .npy file promises other than the member holds, before memory is taken for it."""
    version = _format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{info.filename} has version {version} of the format")
    read = _format.read_array_header_1_0 if version == (1, 0) else _format.read_array_header_2_0
    shape, _, dtype = read(member)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
        raise ValueError(f"{info.filename} promises shape {shape} in {info.file_size:,} bytes")


def read_ts(path: Path) -> Data:
    """The format of aeon and sktime: after ``@data`` a line for each case, channels and the label between colons."""
    labelled, numeric, reading = False, False, False
    cases: list[Values] = []
    labels: list[str] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if not reading:
            if not line.startswith("@"):
                raise ValueError(
                    f"{path}: line {number}: expected a line that begins with @, got {line[:40]!r}"
                )
            words = line.lower().split()
            labelled |= words[0] in ("@classlabel", "@targetlabel") and words[1:2] == ["true"]
            numeric |= words[0] == "@targetlabel"
            reading = words[0] == "@data"
            continue
        *channels, label = line.split(":") if labelled else [*line.split(":"), ""]
        rows = [
            _ts_channel(text, f"{path}: line {number}, channel {index}")
            for index, text in enumerate(channels)
        ]
        if not rows or len({len(row) for row in rows}) != 1:
            raise ValueError(
                f"{path}: line {number}: expected channels of one length, got {[len(row) for row in rows]}"
            )
        if cases and len(rows) != len(cases[0]):
            raise ValueError(f"{path}: line {number}: expected {len(cases[0])} channels, got {len(rows)}")
        cases.append(np.array(rows))
        labels.append(label.strip())
    if not cases:
        raise ValueError(f"{path}: expected cases after a line @data, got none")
    y: NDArray[Any] | None = None
    if labelled:
        try:
            y = np.array(labels, dtype=np.float64 if numeric else str)
        except ValueError as error:
            raise ValueError(f"{path}: expected numbers as targets ({error})") from error
    return Data(cases, y, [str(index) for index in range(len(cases))])


def read_wav_folder(folder: Path, label_pattern: str | None = None, *, needs_target: bool = True) -> Data:
    """Samples, one case for each WAV file in a folder and its subfolders, between -1 and 1."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".wav")
    if not paths:
        raise ValueError(f"{folder}: expected WAV files, got none")
    return _sounds(folder, paths, label_pattern, needs_target=needs_target)


def read_wav_file(path: Path, label_pattern: str | None = None, *, needs_target: bool = True) -> Data:
    """A single WAV file as one case."""
    return _sounds(path.parent, [path], label_pattern, needs_target=needs_target)


def _sounds(folder: Path, paths: list[Path], label_pattern: str | None, *, needs_target: bool) -> Data:
    labels: list[str] = []
    for path in paths:
        if label_pattern is None:
            labels.append(path.parent.name)
            continue
        found = re.search(label_pattern, path.name)
        if found is None or not found.groups():
            if not needs_target:
                break
            raise ValueError(f"{path}: expected a name with a group that matches {label_pattern!r}")
        labels.append(found.group(1))
    sounds = [read_wav(path) for path in paths]
    for path, (samples, rate) in zip(paths, sounds, strict=True):
        if rate != sounds[0][1] or len(samples) != len(sounds[0][0]):
            raise ValueError(
                f"{path}: expected {len(sounds[0][0])} channels at {sounds[0][1]} Hz as in {paths[0].name}, got "
                f"{len(samples)} at {rate} Hz"
            )
    labelled = len(labels) == len(paths) and (label_pattern is not None or len(set(labels)) > 1)
    y = np.array(labels) if labelled else None
    names = [str(path.relative_to(folder)) for path in paths]
    return Data([samples for samples, _ in sounds], y, names, rate=sounds[0][1])


def _ts_channel(text: str, where: str) -> Values:
    values = []
    for place, word in enumerate(text.split(",")):
        try:
            values.append(np.nan if word.strip() == "?" else float(word))
        except ValueError:
            raise ValueError(
                f"{where}, time {place}: expected a number or ?, got {word.strip()[:40]!r}"
            ) from None
    return np.array(values)


def row_number(path: Path, index: int) -> int:
    """The row of a table as an editor counts it: of a CSV file the first one has the names."""
    return int(index) + (2 if path.suffix.lower() == ".csv" else 0)
