"""`make lock`: the whole closure of what the set-up commands install, with the hashes of every file of each package.

python packaging/lock.py [NAME ...]

Left out are torch and the GPU libraries that some of its builds bring: which build is taken (for the CPU, CUDA or
ROCm; from PyPI or from a folder that pip is configured with) is the machine's choice, and each has other files. torch's
version is in constraints.txt. Triton is in the lock of the tests alone.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = {
    "demo": [],
    "test": ["--extra", "dev"],
    "docs": ["--extra", "docs"],
    "browser": [],
    "wheels": [],
}
TOOLS = {"browser": ["playwright"], "wheels": ["build", "ziglang", "uv"]}
"""Locks of tools, which the project itself has no part in."""
BUILD = ["scikit-build-core", "cmake", "ninja"]
"""What builds the kernels; the set-up commands build without isolation, so that these are locked too."""
NOT_LOCKED = re.compile(r"(torch|nvidia-|cuda-)")
FOR_TESTS = re.compile(r"triton")
"""Users get it with torch's GPU builds; the tests check the GPU kernels with it, without a GPU."""


def main() -> int:
    for name in sys.argv[1:] or LOCKS:
        options = LOCKS[name]
        needed = "\n".join(TOOLS.get(name, BUILD))
        sources = ["-", *([] if name in TOOLS else ["pyproject.toml"])]
        command = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "--universal",
            "--generate-hashes",
            "--quiet",
        ]
        command += [
            "--python-version",
            "3.11",
            "--no-header",
            "--no-annotate",
            "--constraint",
            "constraints.txt",
        ]
        done = subprocess.run(
            [*command, *options, *sources],
            input=needed,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        entries = re.split(r"^(?=\S)", done.stdout, flags=re.MULTILINE)
        kept = [entry for entry in entries if entry.strip() and not NOT_LOCKED.match(entry)]
        if name != "test":
            kept = [entry for entry in kept if not FOR_TESTS.match(entry)]
        path = ROOT / "locks" / f"{name}.txt"
        path.write_text("# Written by `make lock`.\n" + "".join(kept))
        print(f"{path.relative_to(ROOT)}: {len(kept)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
