"""The folder of an export: new, and there only when all of it is."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Export:
    """What an export left: its files, and what there is to say about them, a line each."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the name `folder` at the end; after an error nothing is left.

    Raises:
        ValueError: there is something of that name.
    """
    if folder.exists() or folder.is_symlink():
        raise ValueError(f"{folder}: exists; expected the name of a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield unfinished
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
