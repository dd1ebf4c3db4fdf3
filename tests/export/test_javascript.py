"""The generated JavaScript in Node against PyTorch."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import kru
from kru.export import Exportable, javascript

from .cases import BIDIRECTIONAL, STREAMS, build, inputs, state_tuple
from .compiled import run, tool
from .test_modules import LABELS, OWN, Own, case, steps_of


def results(path, x) -> list[dict]:
    """What each step of a sequence returns."""
    script = (
        f"import {{ reset, step }} from {json.dumps(path.as_uri())};"
        f"reset(); const all = {json.dumps(x.tolist())}.map(step);"
        "console.log(JSON.stringify(all.map((r) => ({ ...r, outputs: Array.from(r.outputs) }))));"
    )
    return json.loads(run(tool("node"), "--input-type=module", "-e", script))


def near(found: list[dict], expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    actual = np.array([result["outputs"] for result in found])
    scale = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(actual, expected.numpy(), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize(
    ("name", "symbols"), [*((name, False) for name in STREAMS), ("complex", True), ("lstm", True)]
)
def test_layers(name: str, symbols: bool, tmp_path) -> None:
    layer = build(STREAMS[name])
    [file] = javascript(layer, tmp_path / "js", symbols=symbols).files
    x = inputs(layer, 6, symbols=symbols)
    with torch.no_grad():
        near(results(file, x), layer(x)[0])


@pytest.mark.parametrize("name", list(OWN))
def test_modules(name: str, tmp_path) -> None:
    module, x = case(name)
    x, expected = steps_of(module, x)
    [file] = javascript(module, tmp_path / "js").files
    near(results(file, x), expected)


@pytest.mark.parametrize("outputs", [3, 1])
def test_raw_values_in_labels_out(outputs: int, tmp_path) -> None:
    torch.manual_seed(0)
    module = Own(nn.GRU(3, 6), "mean", nn.ReLU(), nn.Linear(7, outputs)).eval()
    mean, scale = torch.tensor([100.0, -5.0, 0.1]), torch.tensor([30.0, 2.0, 0.01])
    labels = LABELS[: max(2, outputs)]
    trained = Exportable(module, scaling=(mean, scale), labels=labels, probabilities=True)
    [file] = javascript(trained, tmp_path / "js").files
    x = mean + scale * torch.randn(6, 3)
    with torch.no_grad():
        y = torch.stack([module(((x - mean) / scale)[: t + 1, None])[0] for t in range(6)])
    expected = torch.softmax(y, -1) if outputs > 1 else torch.sigmoid(y)
    found = results(file, x)
    near(found, expected)
    indices = expected.argmax(-1) if outputs > 1 else (expected[:, 0] > 0.5).long()
    assert [result["label"] for result in found] == [labels[index] for index in indices]
    assert all("probabilities" in result for result in found)


def test_int8_is_near_and_small(tmp_path) -> None:
    torch.manual_seed(0)
    module = Own(kru.KRULSTM(40, 24), "last", words=50).eval()
    [plain] = javascript(module, tmp_path / "plain").files
    [small] = javascript(module, tmp_path / "small", int8=True).files
    x = torch.randint(50, (9,))
    with torch.no_grad():
        expected = torch.stack([module(x[: t + 1, None])[0] for t in range(9)])
    near(results(small, x), expected, 0.02)
    assert small.stat().st_size < 0.5 * plain.stat().st_size


def test_streams_are_apart_and_run_is_all_steps(tmp_path) -> None:
    layer = build(STREAMS["gru"])
    [file] = javascript(layer, tmp_path / "js").files
    script = (
        f"import * as model from {json.dumps(file.as_uri())};"
        "const a = model.create(), b = model.create(), x = [1, 2, 3], z = [3, 2, 1];"
        "const whole = model.run([x, z]).map((r) => Array.from(r.outputs));"
        "const one = a.step(x); b.step(z); b.step(z); const two = a.step(z);"
        "console.log(JSON.stringify([whole, [one, two].map((r) => Array.from(r.outputs))]));"
        "for (const wrong of [[1], undefined, 3]) try { model.step(wrong); } catch (e) { console.log(e.message); }"
    )
    printed = run(tool("node"), "--input-type=module", "-e", script).splitlines()
    whole, apart = json.loads(printed[0])
    assert whole == apart
    assert printed[1:] == [f"x: expected 3 values, got {got}" for got in ("1", "undefined", "undefined")]


@pytest.mark.parametrize("name", ["complex", "lstm"])
def test_state_is_a_copy_of_every_layer(name: str, tmp_path) -> None:
    layer = build(STREAMS[name])
    [file] = javascript(layer, tmp_path / "js").files
    x = inputs(layer, 4)
    script = (
        f"import {{ run, state, step }} from {json.dumps(file.as_uri())};"
        f"run({json.dumps(x.tolist())}); const before = state(); step([1, 2, 3]);"
        "console.log(JSON.stringify(before.map(({ h, c }) => [Array.from(h), Array.from(c)])));"
    )
    found = json.loads(run(tool("node"), "--input-type=module", "-e", script))
    with torch.no_grad():
        states = state_tuple(layer(x[:, None])[1])
    for index, (h, c) in enumerate(found):
        for actual, expected in zip((h, c), states, strict=False):
            np.testing.assert_allclose(actual, expected[index, 0], rtol=0, atol=1e-5)


def test_two_directions_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="javascript: expected a model with one direction"):
        javascript(build(BIDIRECTIONAL["complex, both directions"]), tmp_path / "js")
