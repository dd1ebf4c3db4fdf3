"""The kernels compiled for GPUs that are not here: no spills, limits kept, barriers where they belong.

`resources.json` has what was found when it was last written: `make gpu-resources` writes it anew. Here a few of the
cases; KRU_FULL=1 (`make gpu-check`) compiles all of them for every kind of GPU.
"""

import importlib.util
import json
import os

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed; it exists for Linux x86-64", allow_module_level=True)

from . import resources as compiler

RECORD = json.loads(compiler.RECORD.read_text())
FULL = bool(os.environ.get("KRU_FULL"))
SOME = [
    ("elman-512-forward-50", "sm_80"),
    ("elman-3x137-forward", "sm_80"),
    ("lstm-128x16-backward", "sm_80"),
    ("gru-128-forward", "gfx942"),
]
EVERY = [(case, target) for case in compiler.CASES for target in compiler.TARGETS]
STREAMS = ("elman-3x137", "lstm", "gru")
"""Cases whose loop over time goes through memory."""


@pytest.mark.parametrize(("case", "target"), EVERY if FULL else SOME)
def test_resources(case: str, target: str) -> None:
    for number, start in enumerate(compiler.starts_of(compiler.CASES[case])):
        name = f"{case} {start.kernel.__name__} {number}"
        found, recorded = compiler.resources(start, target), RECORD[name][target]
        # Nothing but, in two cases, one or two loop counters.
        assert found.stack <= recorded["stack"] <= 8, name
        assert found.spills <= recorded["spills"] <= 4, name
        assert found.shared <= compiler.TARGETS[target][1], name
        assert not found.fetches_ahead, name
        for figure in ("registers", "shared", "instructions"):
            most = 1.05 * recorded[figure]
            assert getattr(found, figure) <= most, f"{name}: {figure}; if that is meant: make gpu-resources"
        if case.startswith(STREAMS) and start.kernel.__name__ != "stage_kernel":
            assert found.ends_with_barrier, name
            assert found.barriers >= 3, name


@pytest.mark.parametrize("target", compiler.TARGETS if FULL else ["sm_80"])
@pytest.mark.parametrize("case", compiler.COMPLETE)
def test_every_argument_compiles(case: str, target: str) -> None:
    """The compiler refuses things that the interpreter accepts."""
    for start in compiler.starts_of(compiler.COMPLETE[case]):
        found = compiler.resources(start, target)
        assert not found.fetches_ahead
        if case != "2x2" and start.kernel.__name__ != "stage_kernel":
            assert found.ends_with_barrier, start.kernel.__name__


def test_every_kernel_is_recorded_for_every_target() -> None:
    names = {
        f"{case} {start.kernel.__name__} {number}"
        for case, function in compiler.CASES.items()
        for number, start in enumerate(compiler.starts_of(function))
    }
    assert names == RECORD.keys()
    assert all(set(found) == set(compiler.TARGETS) for found in RECORD.values())
