"""Zip archives are read in place: nothing is ever written to disk, so no name in them can escape a folder."""

import hashlib
import zipfile
import zlib
from pathlib import Path

from kru.lab.data.errors import DataError

# No member that is read here is larger; a header that claims more is not data that we know.
MEMBER_LIMIT = 256 * 2**20


# All that zipfile was seen to raise on damaged archives, beside its own BadZipFile.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


def open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise DataError(f"{path}: expected a zip archive ({error}); replace it by a sound copy") from error


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of one member, refusing one that unpacks to an absurd size."""
    info = archive.getinfo(name)
    if info.file_size > MEMBER_LIMIT:
        raise DataError(
            f"{archive.filename}: member {name!r} unpacks to {info.file_size:,} bytes, expected at most "
            f"{MEMBER_LIMIT:,}; replace the archive by a sound copy"
        )
    try:
        return archive.read(info)
    except _DAMAGE as error:
        raise DataError(
            f"{archive.filename}: cannot read member {name!r} ({error}); replace the archive by a sound copy"
        ) from error


def contents_sha256(path: Path, suffixes: tuple[str, ...] = (".wav", ".phn")) -> str | None:
    """Digest of the members of a zip that end in `suffixes`, however packed; None if it is not a sound zip.

    It is the sha256 of the lines ``<sha256 of the member>  <name in lower case>``, sorted by name.
    """
    lines = []
    try:
        with open_archive(path) as archive:
            for name in archive.namelist():
                if name.lower().endswith(suffixes):
                    digest = hashlib.sha256(read_member(archive, name)).hexdigest()
                    lines.append((name.lower(), f"{digest}  {name.lower()}\n"))
    except DataError:
        return None
    return hashlib.sha256("".join(line for _, line in sorted(lines)).encode()).hexdigest()
