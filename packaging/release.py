"""`make release`: check that everything is ready for a release of the version in src/kru/__init__.py, and tag it.

python packaging/release.py [--check]
"""

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = 6
"""Five wheels and the source distribution."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="do not tag")
    options = parser.parse_args()
    version = version_of(ROOT)
    wrong = [*about_texts(ROOT, version), *about_git(ROOT, version), *about_files(ROOT / "dist", version)]
    if wrong:
        print(
            f"make release: {version} is not ready:",
            *(f"- {line}" for line in wrong),
            sep="\n",
            file=sys.stderr,
        )
        return 1
    if options.check:
        print(f"{version} is ready")
        return 0
    git(ROOT, "tag", "--annotate", f"v{version}", "--message", f"kru {version}")
    print(
        f"tagged v{version}. What is left: git push origin main v{version}, and upload the contents of dist/"
    )
    return 0


def version_of(root: Path) -> str:
    found = re.search(r'^__version__ = "(.+)"$', (root / "src/kru/__init__.py").read_text(), re.MULTILINE)
    assert found is not None, "src/kru/__init__.py has no version"
    return found[1]


def about_texts(root: Path, version: str) -> list[str]:
    first = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    title = first[1] if first else "nothing"
    if re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", title):
        return []
    return [f"CHANGELOG.md: expected the topmost section to be '{version} (YYYY-MM-DD)', got '{title}'"]


def about_git(root: Path, version: str) -> list[str]:
    wrong = []
    if changed := git(root, "status", "--porcelain"):
        wrong.append(
            f"git: expected everything to be committed, got {len(changed.splitlines())} changed files"
        )
    if git(root, "tag", "--list", f"v{version}"):
        wrong.append(f"git: the tag v{version} exists; set another version")
    return wrong


def about_files(dist: Path, version: str) -> list[str]:
    """The files that `make wheels` wrote, against their checksums."""
    if not (dist / "SHA256SUMS").is_file():
        return ["dist/SHA256SUMS: missing; run make wheels"]
    sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    wrong = []
    if len(sums) != FILES:
        wrong.append(f"dist: expected {FILES} files, got {len(sums)}; run make wheels without WHEELS")
    for name, checksum in sorted(sums.items()):
        path = dist / name
        if not name.startswith(f"kru-{version}-") and name != f"kru-{version}.tar.gz":
            wrong.append(f"dist/{name}: expected version {version}; run make wheels")
        elif not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
            wrong.append(f"dist/{name}: missing, or not the file that SHA256SUMS is about; run make wheels")
    return wrong


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
