"""A wheel for one platform: the pure Python wheel with that platform's library in it."""

import base64
import hashlib
import zipfile
from pathlib import Path

from targets import Target

FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same source


def pack(pure: Path, target: Target, library: Path, folder: Path) -> Path:
    """Write `folder`/NAME-VERSION-py3-none-TAG.whl from the wheel `pure`, which has no library."""
    name, version, *_ = pure.name.split("-")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(pure) as archive:
        files = {item: archive.read(item) for item in archive.namelist() if not item.endswith("/")}
    files.pop(f"{info}/RECORD")
    files[f"{name}/{target.library}"] = library.read_bytes()
    lines = [
        line
        for line in files[f"{info}/WHEEL"].decode().splitlines()
        if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))
    ]
    lines += ["Root-Is-Purelib: false", *(f"Tag: py3-none-{tag}" for tag in target.tag.split("."))]
    files[f"{info}/WHEEL"] = "\n".join([*lines, ""]).encode()
    record = [f"{item},{digest(data)},{len(data)}" for item, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name}-{version}-py3-none-{target.tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for item, data in files.items():
            entry = zipfile.ZipInfo(item, FIRST_DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def digest(data: bytes) -> str:
    """As RECORD has it: URL-safe base64 without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
