"""Kinds and tasks by `module:name` and by the entry points of an installed package."""

import sys
from pathlib import Path

import pytest

from kru.lab.recipes.files import recipe_from
from kru.lab.tasks.registry import TASKS, find_task
from kru.nn import kinds
from kru.nn.kinds import find_kind, model_settings

MODULE = """
from dataclasses import dataclass
from kru.lab.tasks import Adding
from kru.nn.kinds import KINDS, Kind, ModelSettings

@dataclass(frozen=True)
class Settings(ModelSettings):
    flavour: str = "plain"

MINE = Kind("{name}", "Mine", KINDS["kru"].build, Settings)
NOTHING = 3

class Longer(Adding):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory, not imported yet, and forgotten afterwards."""
    name = "kru_test_own_models"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=f"{name}:MINE"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kinds, "KINDS", dict(kinds.KINDS))
    for task in (f"{name}:Longer", "kru-test-longer"):
        monkeypatch.setitem(TASKS, task, TASKS["adding"])
        del TASKS[task]
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield name
    sys.modules.pop(name, None)


def test_a_recipe_may_import_what_it_names(module: str) -> None:
    mapping = {
        "task": {"name": f"{module}:Longer", "T": 9},
        "model": {"kind": f"{module}:MINE", "flavour": "sour"},
    }
    recipe = recipe_from(mapping, "mine")
    assert module in sys.modules
    assert (recipe.model.flavour, recipe.task.label) == ("sour", "Adding, T = 9")
    # Once it is loaded, a file of weights may name it as well.
    assert recipe_from(mapping, "mine", recorded=True) == recipe
    assert "" not in sys.path[:1]


@pytest.mark.parametrize("part", ["task", "model"])
def test_weights_import_nothing(module: str, part: str) -> None:
    mapping = {"task": {"name": "copy"}, "model": {"kind": "kru"}}
    mapping[part] = {"task": {"name": f"{module}:Longer"}, "model": {"kind": f"{module}:MINE"}}[part]
    with pytest.raises(ValueError, match=f"needs the module {module}, .* --import {module}"):
        recipe_from(mapping, "mine", recorded=True)
    assert module not in sys.modules


def test_what_cannot_be_found_is_named(module: str) -> None:
    for name, complaint in (
        (f"{module}:MISSING", f"model.kind: the module {module} has no 'MISSING'"),
        (f"{module}:NOTHING", "is not of the kind that is expected, it is 3"),
        ("kru_test_no_module:X", "model.kind: cannot import kru_test_no_module"),
        ("../x:X", "model.kind: expected the name of a module, got '../x'"),
        ("unheard-of", "model.kind: expected one of kru, .* or module:name, got 'unheard-of'"),
    ):
        with pytest.raises(ValueError, match=complaint.replace("../x", r"\.\./x")):
            find_kind(name, imports=True)
    with pytest.raises(ValueError, match=r"task\.name: .* is not of the kind that is expected"):
        find_task(f"{module}:MINE", imports=True)


def test_an_installed_package_offers_names(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{module}.py").write_text(MODULE.format(name="kru-test-mine"))
    about = tmp_path / "kru_test_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kru-test-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[kru.models]\nkru-test-mine = {module}:MINE\n[kru.tasks]\nkru-test-longer = {module}:Longer\n"
    )
    assert model_settings("kru-test-mine", 4, flavour="sour").flavour == "sour"
    assert find_task("kru-test-longer")(T=9).label == "Adding, T = 9"
    with pytest.raises(ValueError, match=r"model\.rank: does not apply to kru-test-mine"):
        model_settings("kru-test-mine", 4, rank=2)


def test_a_name_is_taken_once() -> None:
    assert kinds.register(kinds.KINDS["kru"]) is kinds.KINDS["kru"]
    with pytest.raises(ValueError, match="kind: expected a name that is not taken, got 'kru'"):
        kinds.register(kinds.Kind("kru", "other", kinds.KINDS["lstm"].build))
