"""What `make release` refuses."""

import hashlib
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

import kru

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path):
    """A repository that is ready, its files made up."""
    (tmp_path / "src/kru").mkdir(parents=True)
    (tmp_path / "src/kru/__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-05-01)\n\n## 1.1.0 (2026-01-01)\n")
    (tmp_path / ".gitignore").write_text("dist/\n")
    dist = tmp_path / "dist"
    dist.mkdir()
    names = [f"kru-1.2.0-py3-none-{tag}.whl" for tag in "abcde"] + ["kru-1.2.0.tar.gz"]
    for name in names:
        (dist / name).write_text(name)
    sums = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in names]
    (dist / "SHA256SUMS").write_text("".join(sums))
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message", "m"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def findings(release, project) -> list[str]:
    version = release.version_of(project)
    return [
        *release.about_texts(project, version),
        *release.about_git(project, version),
        *release.about_files(project / "dist", version),
    ]


def test_what_is_ready_is_ready(release, project) -> None:
    assert findings(release, project) == []


def undated(project: Path) -> None:
    (project / "CHANGELOG.md").write_text("## 1.2.0 (unreleased)\n")
    subprocess.run(["git", "update-index", "--assume-unchanged", "CHANGELOG.md"], cwd=project, check=True)


def another_version(project: Path) -> None:
    (project / "src/kru/__init__.py").write_text('__version__ = "1.3.0"\n')


def tagged(project: Path) -> None:
    subprocess.run(["git", "tag", "v1.2.0"], cwd=project, check=True)


def damaged(project: Path) -> None:
    (project / "dist" / "kru-1.2.0.tar.gz").write_text("another")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (undated, "got '1.2.0 (unreleased)'"),
        (another_version, "expected version 1.3.0"),
        (tagged, "the tag v1.2.0 exists"),
        (damaged, "kru-1.2.0.tar.gz: missing, or not the file"),
        (lambda project: (project / "new").touch(), "got 1 changed files"),
        (lambda project: (project / "dist" / "SHA256SUMS").unlink(), "run make wheels"),
    ],
)
def test_what_is_not_ready_is_named(break_it, says: str, release, project) -> None:
    break_it(project)
    assert any(says in line for line in findings(release, project))


def test_the_version_is_written_once() -> None:
    """In the package alone: pyproject.toml reads it there, and the changelog has it as a title."""
    files = ["pyproject.toml", "CITATION.cff", "CMakeLists.txt", "README.md", "Makefile"]
    pattern = rf"(?<![\d.>=]){re.escape(kru.__version__)}(?![\d.])"
    assert [name for name in files if re.search(pattern, (ROOT / name).read_text())] == []
