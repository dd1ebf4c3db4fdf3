"""`make wheels`: the source distribution and a wheel for each platform, built and checked on one Linux machine.

python packaging/wheels.py [--out dist] [--only NAME ...] [--cases N]
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from archive import pack
from checks import check_wheel, run_selftest
from installed import check_installed
from targets import TARGETS, build_library, build_selftest

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the files")
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="platforms")
    parser.add_argument("--cases", type=int, default=60, help="cases of each self-test")
    parser.add_argument("--no-install", action="store_true", help="skip the test in a fresh environment")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("kru-*"):
        old.unlink()
    work = ROOT / "build" / "wheels"
    shutil.rmtree(work / "pure", ignore_errors=True)
    # The wheel is built from the source distribution, so that one that lacks a file is noticed.
    build = [
        sys.executable,
        "-m",
        "build",
        "--outdir",
        str(work / "pure"),
        "-C",
        "wheel.cmake=false",
        str(ROOT),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    (pure,) = (work / "pure").glob("*.whl")
    (source,) = (work / "pure").glob("*.tar.gz")
    shutil.copy(source, options.out)
    print(f"source distribution: {source.name}, {source.stat().st_size / 1e6:.1f} MB", flush=True)
    for target in TARGETS:
        if target.name not in options.only:
            continue
        start, folder = time.monotonic(), work / target.name
        library = build_library(target, folder, os.cpu_count() or 1)
        wheel = pack(pure, target, library, options.out)
        line = check_wheel(wheel, target, folder)
        print(f"{wheel.name}: {line}", flush=True)
        print(f"  {run_selftest(build_selftest(target, folder, library), target, options.cases)}", flush=True)
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
        if target.name == "linux-x86-64" and not options.no_install:
            with tempfile.TemporaryDirectory() as fresh:
                print(f"  {check_installed(wheel, Path(fresh))}", flush=True)
    files = sorted(path for path in options.out.glob("kru-*"))
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (options.out / "SHA256SUMS").write_text(sums)
    print(f"{len(files)} files and SHA256SUMS in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
