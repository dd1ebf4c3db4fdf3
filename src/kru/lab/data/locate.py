"""Where data files lie, and whether they are whole."""

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kru.lab.data.archive import contents_sha256
from kru.lab.data.errors import DataError
from kru.lab.data.registry import DATASETS, DataFile

UNPACKED_FACTOR = 8
"""How many times the size of a registered archive its contents may have."""


@dataclass(frozen=True)
class FileStatus:
    """One registered file in one data directory; `state` is "ok", "missing", "truncated" or "altered"."""

    dataset: str
    file: DataFile
    path: Path
    state: str


def data_directory(data_dir: str | Path | None = None) -> Path:
    """The data directory: `data_dir` if given, else ``KRU_DATA``, else the user's cache."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get("KRU_DATA"):
        return Path(named).expanduser()
    return _user_cache() / "kru" / "data"


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    named = os.environ.get(variable)
    return Path(named) if named else Path.home() / ".cache"


def select(names: Iterable[str] | None = None) -> list[tuple[str, DataFile]]:
    """The (data set, file) pairs of the named data sets, all for None."""
    chosen = list(DATASETS) if names is None else list(names)
    for name in chosen:
        if name not in DATASETS:
            raise DataError(f"data set: expected one of {', '.join(DATASETS)}, got {name!r}")
    return [(name, file) for name in chosen for file in DATASETS[name].files]


def list_files(data_dir: str | Path | None = None) -> list[FileStatus]:
    """Every registered file with its state judged by its size alone, which is instant."""
    directory = data_directory(data_dir)
    return [
        FileStatus(name, file, directory / file.path, file_state(file, directory / file.path, thorough=False))
        for name, file in select()
    ]


def check(names: Iterable[str] | None = None, data_dir: str | Path | None = None) -> list[FileStatus]:
    """The files of the named data sets (all for None), with their state judged by their sha256."""
    directory = data_directory(data_dir)
    return [
        FileStatus(name, file, directory / file.path, file_state(file, directory / file.path))
        for name, file in select(names)
    ]


def find(path: str, data_dir: str | Path | None = None) -> Path:
    """The place of a registered file such as ``"ptb/ptb.train.txt"``, after its sha256 was checked."""
    directory = data_directory(data_dir)
    name, file = next((name, file) for name, file in select() if file.path == path)
    place = directory / path
    state = file_state(file, place)
    if state == "missing":
        raise DataError(
            f"{place}: missing; run `kru data fetch {name}`, or name a directory that has {path} by "
            "--data-dir or KRU_DATA"
        )
    if state != "ok":
        raise DataError(
            f"{place}: not the file of {name}, or {state} ({place.stat().st_size:,} bytes, expected {file.size:,} with "
            f"sha256 {file.sha256}); `kru data fetch {name}` gets that file, `kru fit` takes data of your own"
        )
    return place


def file_state(file: DataFile, path: Path, *, thorough: bool = True) -> str:
    """The `FileStatus.state` of a file; without `thorough`, one of the right size is taken as "ok"."""
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if size == file.size and (not thorough or file_sha256(path) == file.sha256):
        return "ok"
    # The same contents packed otherwise; recordings unpack to a few times the archive's size.
    wanted = file.contents_sha256
    limit = UNPACKED_FACTOR * file.size
    if wanted is not None and contents_sha256(path, limit, folder=file.contents_folder) == wanted:
        return "ok"
    return "truncated" if size < file.size else "altered"


def file_sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
