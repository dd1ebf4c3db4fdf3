"""torch.export programs: loaded where this package can't be imported, and compared with PyTorch."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import kru
from kru.export import program
from kru.export.source import network_from
from kru.export.torch_modules import Sequence, Step

from .cases import BIDIRECTIONAL, STREAMS, as_state, build, inputs, random_state, state_tuple

ALL = {**STREAMS, **BIDIRECTIONAL}

# Importing the tracer uses parts of torch that torch itself has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ELSEWHERE = """
import sys, torch
from safetensors.torch import load_file, save_file
sys.modules["kru"] = None  # an import of it would fail
folder, *paths = sys.argv[1:]
feed, results, modules = load_file(f"{folder}/in.safetensors"), {}, {}
for case, path in enumerate(paths):
    if path not in modules:
        modules[path] = torch.export.load(path).module()
    arguments = [feed[name] for name in sorted(feed) if name.startswith(f"{case}/")]
    for index, value in enumerate(modules[path](*arguments)):
        results[f"{case}/{index}"] = value.detach().contiguous()
save_file(results, f"{folder}/out.safetensors")
"""


def run_elsewhere(cases, folder):
    """What programs compute for their arguments, in a process without this package."""
    feed = {
        f"{case}/{index}": value.contiguous()
        for case, (_, arguments) in enumerate(cases)
        for index, value in enumerate(arguments)
    }
    save_file(feed, folder / "in.safetensors")
    command = [sys.executable, "-W", "ignore", "-c", ELSEWHERE, folder, *(path for path, _ in cases)]
    subprocess.run(command, check=True, timeout=300)
    results = load_file(folder / "out.safetensors")
    return [
        [results[name] for name in sorted(results) if name.startswith(f"{case}/")]
        for case in range(len(cases))
    ]


def assert_near(actual, expected) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * max(1.0, float(theirs.abs().max())))


@pytest.mark.parametrize("make", list(ALL.values()), ids=list(ALL))
def test_the_modules_that_are_traced(make) -> None:
    layer = build(make)
    network = network_from(layer)
    with torch.no_grad():
        x = inputs(layer, 4, 2)
        output, state = layer(x)
        assert_near(Sequence(network)(x), [output, *state_tuple(state)])
        if not layer.bidirectional:
            x, states = inputs(layer, 2), random_state(layer, 2)
            output, state = layer.step(x, as_state(states))
            assert_near(Step(network)(x, *states), [output, *state_tuple(state)])


PROGRAMS = {
    "symbols": lambda: kru.KRULSTM(3, 6),
    "both directions": lambda: kru.KRU(3, 6, bidirectional=True, batch_first=True),
}


def test_programs(tmp_path) -> None:
    """All in one go: a process that imports torch is slow to start."""
    layers, cases = {name: build(make) for name, make in PROGRAMS.items()}, {}
    for name, layer in layers.items():
        written = program(layer, tmp_path / name, symbols=name == "symbols")
        assert len(written.files) + len(written.notes) == 2
        for file in written.files:
            for b in (1, 3):
                if file.stem == "model_sequence":
                    arguments = (inputs(layer, 2 * b, b, symbols=name == "symbols"),)
                else:
                    arguments = (inputs(layer, b, symbols=name == "symbols"), *random_state(layer, b))
                cases[name, file, b] = arguments
    assert [note for note in written.notes if note.startswith("no step: its second direction begins")]
    results = run_elsewhere([(file, arguments) for (_, file, _), arguments in cases.items()], tmp_path)
    for ((name, file, _), (x, *states)), result in zip(cases.items(), results, strict=True):
        layer = layers[name]
        with torch.no_grad():
            if file.stem == "model_sequence":
                output, state = layer(x)
            else:
                output, state = layer.step(x, as_state(tuple(states)))
        assert_near(result, [output, *state_tuple(state)])
