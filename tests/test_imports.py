"""Imports point one way, and `import kru` loads neither the laboratory nor what only that needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
LEVELS = (
    {"linalg", "ops", "sound"},
    {"matrices"},
    {"optim"},
    {"nn"},
    {"training", "export", "compression"},
    {"estimators", "reservoir"},
    {"lab"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def imports(path):
    """The modules of kru that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected absolute imports"
            yield node.module
            if node.module == "kru":
                yield from (f"kru.{alias.name}" for alias in node.names)


def arrows_back():
    found = set()
    for path in sorted((SOURCE / "kru").rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        own = LEVEL.get(name.split(".")[1])
        for other in imports(path):
            parts = other.split(".")
            if own is None or parts[0] != "kru" or len(parts) < 2 or parts[1] not in LEVEL:
                continue
            if LEVEL[parts[1]] > own:
                found.add((name, other))
    return found


def test_no_import_points_back():
    assert sorted(arrows_back()) == []


@pytest.mark.parametrize("module", ["kru", "kru.export", "kru.compression"])
def test_the_library_loads_without_the_laboratory(module):
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "kru.ops" in loaded
    assert [name for name in loaded if name.split(".")[0] in ("tyro", "matplotlib")] == []
    assert [name for name in loaded if name.startswith("kru.lab")] == []
