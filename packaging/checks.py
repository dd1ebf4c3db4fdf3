"""What is checked of every wheel, without installing it."""

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

from archive import digest
from binaries import read_library
from targets import CSRC, Target

LIBRARIES = (".so", ".dylib", ".dll", ".pyd")
ARM64_SYSTEM = "/usr/aarch64-linux-gnu"


def check_wheel(wheel: Path, target: Target, folder: Path) -> str:
    """Check contents, tags, and the library's interface; returns a line about it.

    Raises:
        ValueError: something is not as it should be.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {item: archive.read(item) for item in archive.namelist()}
    name, version, *_ = wheel.name.split("-")
    info = f"{name}-{version}.dist-info"
    libraries = [item for item in files if item.endswith(LIBRARIES)]
    expect("libraries", libraries, [f"kru/{target.library}"])
    strange = [item for item in files if not item.startswith(("kru/", "kru_command/", f"{info}/"))]
    expect("files that do not belong to kru", strange, [])
    for needed in (
        "kru/__init__.py",
        "kru/py.typed",
        f"{info}/METADATA",
        f"{info}/entry_points.txt",
        f"{info}/licenses/LICENSE",
    ):
        expect(needed, needed in files, True)
    tags = re.findall(r"^Tag: (.*)$", files[f"{info}/WHEEL"].decode(), re.MULTILINE)
    expect("tags", tags, [f"py3-none-{tag}" for tag in target.tag.split(".")])
    for line in files[f"{info}/RECORD"].decode().split():
        item, checksum, _ = line.rsplit(",", 2)
        if checksum:
            expect(f"checksum of {item}", digest(files[item]), checksum)
    unpacked = folder / target.library
    unpacked.write_bytes(files[libraries[0]])
    library = read_library(unpacked)
    expect("machine", library.machine, target.machine)
    declared = set(re.findall(r"^KRU_API .*?(kru_\w+)\(", (CSRC / "kru.h").read_text(), re.MULTILINE))
    # zig's linker for macOS always exports two names for the library's own start.
    added = {"_mh_dylib_header", "__dso_handle"} if target.macos else set()
    expect("exported symbols", sorted(library.exports - added), sorted(declared))
    foreign = [item for item in library.needs if not item.lower().startswith(target.needs)]
    expect("libraries needed beyond the system's", foreign, [])
    if target.linux and library.system > target.system:
        raise ValueError(f"glibc: expected {target.system} at most, got {library.system}")
    if target.macos:
        expect("oldest macOS", library.system, target.system)
        expect("signature", library.signed or target.machine == "x86_64", True)
    return (
        f"{len(files)} files, {wheel.stat().st_size / 1e6:.1f} MB, needs {', '.join(sorted(library.needs))}"
    )


def run_selftest(program: Path, target: Target, cases: int) -> str:
    """Run the kernels' own test, under an emulator where needed; returns what happened."""
    emulator = emulator_for(target)
    if emulator is None:
        return f"self-test skipped: nothing here runs programs for {target.name}"
    seen = []
    for level in target.instruction_sets:
        environment = {
            **os.environ,
            "KRU_SIMD": level,
            "WINEDEBUG": "-all",
            "WINEPREFIX": str(program.parent / "wine"),
        }
        command = [*emulator, str(program), str(cases)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode or ", 0 failed" not in done.stdout:
            raise ValueError(f"self-test of {target.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        seen.append(done.stdout.split(",")[0].split()[-1])
    under = f" under {Path(emulator[0]).name}" if emulator else ""
    return f"self-test passed ({', '.join(dict.fromkeys(seen))}{under})"


def emulator_for(target: Target) -> list[str] | None:
    """The command before a program's name; empty for programs of this machine, None if there is none."""
    machine = os.uname()
    if target.linux and machine.sysname == "Linux" and machine.machine == target.machine:
        return []
    if target.name == "linux-arm64" and shutil.which("qemu-aarch64") and Path(ARM64_SYSTEM).is_dir():
        return ["qemu-aarch64", "-L", ARM64_SYSTEM]
    wine = shutil.which("wine64") or shutil.which("wine") or shutil.which("wine64", path="/usr/lib/wine")
    if target.windows and machine.machine == "x86_64" and wine:
        return [wine]
    return None


def expect(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise ValueError(f"{what}: expected {expected}, got {got}")
