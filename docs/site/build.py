"""Build the documentation site: python docs/site/build.py [--no-gallery] TARGET"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from stage import SITE, stage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, help="folder of the site; sources and caches go beside it")
    parser.add_argument("--no-gallery", action="store_true", help="leave out what the examples show")
    arguments = parser.parse_args()
    work = arguments.target.resolve().parent
    stage(work / "source")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--builder",
        "html",
        "--conf-dir",
        str(SITE),
        "--fail-on-warning",
    ]
    command += ["--doctree-dir", str(work / "doctrees"), "--quiet"]
    environment = {**os.environ, **({"KRU_NO_GALLERY": "1"} if arguments.no_gallery else {})}
    command += [str(work / "source"), str(arguments.target)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
