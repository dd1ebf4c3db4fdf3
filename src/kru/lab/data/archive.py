"""Zip archives are read in place: nothing is ever written to disk, so no name in them can escape a folder.

What an archive claims to unpack to is compared with the limits here before anything is unpacked.
"""

import hashlib
import lzma
import struct
import zipfile
import zlib
from pathlib import Path

from kru.lab.data.errors import DataError

# No member that is read here is larger; a header that claims more is not data that we know.
MEMBER_LIMIT = 256 * 2**20

RATIO_LIMIT = 100
"""How many times its own size an archive may unpack to; TIMIT's sample reaches 1.44, deflate can reach 1,032."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members may be packed: methods whose output zipfile can stop at a given length."""

# All that zipfile was seen to raise on damaged archives, beside its own BadZipFile.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    IndexError,
    RuntimeError,
    ValueError,
)


def open_archive(path: Path) -> zipfile.ZipFile:
    """An archive that unpacks to at most `RATIO_LIMIT` times its size."""
    try:
        archive = zipfile.ZipFile(path)
        size = path.stat().st_size
    except _DAMAGE as error:
        raise DataError(f"{path}: expected a zip archive ({error}); replace it by a sound copy") from error
    unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > RATIO_LIMIT * size:
        archive.close()
        raise DataError(
            f"{path}: {size:,} bytes unpack to {unpacked:,}, expected at most {RATIO_LIMIT} times as many; replace it "
            "by a sound copy"
        )
    return archive


def read_member(archive: zipfile.ZipFile, name: str, limit: int = MEMBER_LIMIT) -> bytes:
    """The bytes of one member, refusing one that unpacks to more than `limit` bytes."""
    info = archive.getinfo(name)
    advice = "replace the archive by a sound copy"
    if info.file_size > limit:
        raise DataError(
            f"{archive.filename}: member {name!r} unpacks to {info.file_size:,} bytes, expected at most {limit:,}; "
            f"{advice}"
        )
    if info.compress_type not in METHODS:
        raise DataError(
            f"{archive.filename}: member {name!r} is packed by method {info.compress_type}, expected stored or "
            "deflated; pack the archive anew"
        )
    try:
        with archive.open(info) as stream:
            # Not all that there is: the size in the directory may be a lie.
            data = stream.read(info.file_size)
        if len(data) != info.file_size:
            raise EOFError(f"it ends after {len(data):,} of {info.file_size:,} bytes")
    except _DAMAGE as error:
        raise DataError(f"{archive.filename}: cannot read member {name!r} ({error}); {advice}") from error
    return data


def contents_sha256(
    path: Path, limit: int, suffixes: tuple[str, ...] = (".wav", ".phn"), folder: str = ""
) -> str | None:
    """Digest of the members of a zip that end in `suffixes`, however packed; None if it is not a sound zip.

    With a folder, only of the members in it, and names begin with it: archives of repositories put another folder
    before it.

    None also if they unpack to more than `limit` bytes in all, which is known before any is unpacked.

    It is the sha256 of the lines ``<sha256 of the member>  <name in lower case>``, sorted by name.
    """
    lines = []
    try:
        with open_archive(path) as archive:
            names = [name for name in archive.namelist() if name.lower().endswith(suffixes)]
            if folder:
                names = [name for name in names if f"/{folder}/" in f"/{name}"]
            if sum(archive.getinfo(name).file_size for name in names) > limit:
                return None
            for name in names:
                digest = hashlib.sha256(read_member(archive, name)).hexdigest()
                known = name.lower()
                if folder:
                    known = folder + f"/{known}".split(f"/{folder}", 1)[1]
                lines.append((known, f"{digest}  {known}\n"))
    except DataError:
        return None
    return hashlib.sha256("".join(line for _, line in sorted(lines)).encode()).hexdigest()
