"""The lock files hold what pyproject.toml asks for, in the versions of constraints.txt."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement)[0]).lower()


def pins(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE):
        found.setdefault(name_of(name), set()).add(version)
    return found


@pytest.mark.parametrize(("lock", "extra"), [("demo", None), ("test", "dev"), ("docs", "docs")])
def test_locks_follow_the_project(lock: str, extra: str | None) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    locked = pins(ROOT / "locks" / f"{lock}.txt")
    missing = {name_of(requirement) for requirement in wanted} - locked.keys() - {"torch"}
    assert not missing, "run `make lock`"
    for name, versions in pins(ROOT / "constraints.txt").items():
        assert locked.get(name, versions) == versions, f"{name}: run `make lock`"


@pytest.mark.parametrize("lock", ["demo", "test", "docs", "browser", "wheels"])
def test_every_package_has_hashes(lock: str) -> None:
    entries = re.split(r"^(?=\w)", (ROOT / "locks" / f"{lock}.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) > 1
    assert all("--hash=sha256:" in entry for entry in entries)
