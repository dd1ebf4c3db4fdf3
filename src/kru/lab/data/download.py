"""Downloading data files: with progress, continued after an interruption, verified before they are named."""

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from kru.lab.data.errors import DataError
from kru.lab.data.locate import FileStatus, data_directory, file_state, select
from kru.lab.data.registry import DataFile
from kru.training.files import NO_LINK

ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0
TOTAL_SECONDS = 3600.0
"""How long one file may take in all: a source that sends a byte now and then is given up. The next call continues."""
CHUNK = 1 << 16
# A source may pack an archive differently from ours, but not to many times its size.
SIZE_FACTOR = 4

_NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def fetch(
    names: Iterable[str] | None = None, data_dir: str | Path | None = None, *, progress: bool = True
) -> list[FileStatus]:
    """Download the files of the named data sets (all for None) that are not already there and whole.

    A download grows in ``<file>.part``, which a later call continues; only when its sha256 is right does it
    take the file's name, in one step. A file that is there already but truncated or altered is replaced in
    that step.
    """
    directory = data_directory(data_dir)
    statuses = []
    for name, file in select(names):
        path = directory / file.path
        if file_state(file, path) != "ok":
            _fetch_file(file, path, progress)
        statuses.append(FileStatus(name, file, path, "ok"))
    return statuses


def _fetch_file(file: DataFile, path: Path, progress: bool) -> None:
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(file, part, progress)
        state = file_state(file, part)
        if state != "ok":
            size = part.stat().st_size
            part.unlink()
            raise DataError(
                f"{path}: {file.url} sent {size:,} bytes that are not the file expected ({file.size:,} "
                f"bytes, sha256 {file.sha256}); its source may have changed: put a sound copy there by hand"
            )
        os.replace(part, path)
    except _NETWORK_ERRORS as error:
        raise DataError(
            f"{path}: cannot download {file.url} ({error}); try again (it continues where it stopped), or "
            "put the file there by hand"
        ) from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot write ({error}); free some space, or choose a writable directory by --data-dir "
            "or KRU_DATA"
        ) from error


def _download(file: DataFile, part: Path, progress: bool) -> None:
    """Bring `part` to the size that the source announces, going on after a broken connection a few times."""
    limit = file.size if file.contents_sha256 is None else SIZE_FACTOR * file.size
    deadline = time.monotonic() + TOTAL_SECONDS
    for attempt in range(ATTEMPTS):
        try:
            _download_rest(file, part, limit, deadline, progress)
        except urllib.error.HTTPError as error:
            if error.code == 416 and part.exists():
                # The range begins at or past the end: either all is here, or the part belongs to something
                # else.
                if file_state(file, part) == "ok":
                    return
                part.unlink()
            elif error.code < 500 or attempt == ATTEMPTS - 1:
                raise
            time.sleep(0.5 * 2**attempt)
        except _NETWORK_ERRORS:
            if attempt == ATTEMPTS - 1 or time.monotonic() >= deadline:
                raise
            time.sleep(0.5 * 2**attempt)
        else:
            return


def _download_rest(file: DataFile, part: Path, limit: int, deadline: float, progress: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have >= limit:
        if file_state(file, part) == "ok":
            return
        part.unlink()
        have = 0
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != 206:
            # The source ignored the range and sends the file from its beginning.
            have = 0
        announced = response.headers.get("Content-Length")
        total = have + int(announced) if announced else file.size
        bar = tqdm(
            total=total,
            initial=have,
            unit="B",
            unit_scale=True,
            desc=Path(file.path).name,
            disable=not progress,
        )
        with bar, open(_open_part(part, append=have > 0), "ab" if have else "wb") as stream:
            # Not `read`, which waits until the whole chunk is there.
            while chunk := response.read1(CHUNK):
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"not done after {TOTAL_SECONDS:,.0f} s")
                stream.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
                if have > limit:
                    return
        if have < total:
            raise ConnectionError(f"the connection closed after {have:,} of {total:,} bytes")


def _open_part(part: Path, *, append: bool) -> int:
    """The descriptor of the file that a download grows in: never what a link leads to."""
    kind = os.O_APPEND if append else os.O_TRUNC
    return os.open(part, os.O_WRONLY | os.O_CREAT | kind | NO_LINK, 0o666)
