"""Exported echo state models: the same outputs in C, JavaScript, ONNX and torch programs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kru.export import c99, javascript, onnx, program
from kru.reservoir import EchoStateClassifier, EchoStateForecaster, EchoStateRegressor

from ..export.compiled import Compiled, run, tool

U = np.random.default_rng(1).uniform(-3, 7, (2, 400))
DELAYED = np.roll(U.sum(0), 2)[None] * 10

MODELS: dict[str, Any] = {
    "state alone": lambda: EchoStateRegressor(32, ridge=1e-2, input_to_readout=False),
    "leak": lambda: EchoStateRegressor(32, ridge=1e-2, leak=0.6),
    "leak per unit, deep": lambda: EchoStateRegressor(12, ridge=1e-2, leak=np.linspace(0.2, 1, 12), layers=2),
    "complex, leak": lambda: EchoStateRegressor(
        12, ridge=1e-2, leak=0.4, field="complex", nonlinearity="modrelu"
    ),
    "deep": lambda: EchoStateRegressor(24, ridge=1e-2, layers=3, input_to_readout=False),
}


def fitted(name: str) -> tuple[Any, np.ndarray]:
    """A model, and what it says of each step of the first sequence."""
    model = MODELS[name]().fit(U[None], DELAYED[None])
    return model, model.predict(U[None])[0, 0]


def classifier(**settings: Any) -> tuple[EchoStateClassifier, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    X = [
        np.stack([np.sin((0.3 + 0.5 * (k % 3)) * np.arange(40 + k) + k), rng.normal(size=40 + k)]) * 20
        for k in range(30)
    ]
    model = EchoStateClassifier(16, **settings).fit(X, [f"label {k % 3}" for k in range(30)])
    return model, X


def in_javascript(path: Path, x: np.ndarray) -> list[dict[str, Any]]:
    script = (
        f"import {{ run, reset, step }} from {json.dumps(path.as_uri())};"
        f"reset(); const all = {json.dumps(x.T.tolist())}.map(step);"
        "console.log(JSON.stringify(all.map((r) => ({ ...r, outputs: Array.from(r.outputs) }))));"
    )
    found: list[dict[str, Any]] = json.loads(run(tool("node"), "--input-type=module", "-e", script))
    return found


def in_onnx(path: Path, x: np.ndarray) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path)
    found: list[np.ndarray] = session.run(None, {"input": x.T[:, None].astype(np.float32)})
    return found


@pytest.mark.parametrize("name", list(MODELS))
def test_regressors(name: str, tmp_path: Path) -> None:
    model, expected = fitted(name)
    in_c = Compiled(c99(model, tmp_path / "c"))
    found = [in_c.step(torch.from_numpy(x.astype(np.float32)))[0] for x in U.T]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=1e-4 * scale)
    found = [one["outputs"][0] for one in in_javascript(javascript(model, tmp_path / "js").files[0], U)]
    np.testing.assert_allclose(found, expected, atol=1e-4 * scale)
    onnx(model, tmp_path / "onnx")
    [found, *_] = in_onnx(tmp_path / "onnx" / "model_sequence.onnx", U)
    np.testing.assert_allclose(found[:, 0, 0], expected, atol=1e-4 * scale)


@pytest.mark.parametrize("settings", [{"leak": 0.7}, {"pooling": "mean", "layers": 2}, {"pooling": "last"}])
def test_classifiers(settings: dict[str, Any], tmp_path: Path) -> None:
    model, X = classifier(**settings)
    expected, labels = model.predict_proba(X), model.predict(X)
    assert len(set(labels)) == 3
    in_c = Compiled(c99(model, tmp_path / "c"))
    [file] = javascript(model, tmp_path / "js").files
    onnx(model, tmp_path / "onnx")
    written = program(model, tmp_path / "pt2") if "leak" in settings else None
    for index in range(4):
        x = X[index]
        in_c.reset()
        for values in x.T:
            found = in_c.step(torch.from_numpy(values.astype(np.float32)))
        np.testing.assert_allclose(found, expected[index], atol=1e-4)
        last = in_javascript(file, x)[-1]
        np.testing.assert_allclose(last["outputs"], expected[index], atol=1e-4)
        assert last["label"] == labels[index]
        [output, *_, label] = in_onnx(tmp_path / "onnx" / "model_sequence.onnx", x)
        np.testing.assert_allclose(output[0], expected[index], atol=1e-4)
        assert label.tolist() == [labels[index]]
        if written is not None:
            [path] = [path for path in written.files if path.name.endswith("sequence.pt2")]
            rows = torch.from_numpy(x.T[:, None].astype(np.float32))
            output = torch.export.load(path).module()(rows)[0]
            np.testing.assert_allclose(output[0].detach().numpy(), expected[index], atol=1e-4)


def test_steps_of_onnx_carry_the_moments(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model, X = classifier(leak=0.5, layers=2)
    onnx(model, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model_step.onnx")
    feed = {
        entry.name: np.zeros([1 if isinstance(size, str) else size for size in entry.shape], np.float32)
        for entry in session.get_inputs()
    }
    outputs = [entry.name for entry in session.get_outputs()]
    for values in X[1].T:
        feed["input"] = values[None].astype(np.float32)
        found = dict(zip(outputs, session.run(outputs, feed), strict=True))
        feed |= {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
    np.testing.assert_allclose(found["output"][0], model.predict_proba(X[1:2])[0], atol=1e-4)


def test_a_forecaster_in_c_predicts_in_free_run(tmp_path: Path) -> None:
    series = 50 + 20 * np.sin(0.2 * np.arange(400))
    model = EchoStateForecaster(32, precision="float32", leak=0.8).fit(series)
    in_c = Compiled(c99(model, tmp_path / "c"))
    for value in series:
        y = in_c.step(torch.tensor([value], dtype=torch.float32))
    found = []
    for _ in range(20):
        found.append(y[0])
        y = in_c.step(torch.from_numpy(y))
    np.testing.assert_allclose(found, model.predict(20), atol=0.1)


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    model = EchoStateRegressor(16, feedback=True, ridge=1e-2, solver="random-features", n_features=8)
    with pytest.raises(ValueError, match="feedback, solver: can export models without feedback"):
        onnx(model.fit(U[None], DELAYED[None]), tmp_path / "model")
    pooled, _ = classifier(washout=5)
    with pytest.raises(ValueError, match="washout: can export models"):
        onnx(pooled, tmp_path / "model")
    faint = EchoStateRegressor(16, input_scaling=1e-6, ridge=1e-15, input_to_readout=False)
    with pytest.raises(ValueError, match="ridge: expected a read-out that single precision can compute"):
        c99(faint.fit(U[None], DELAYED[None]), tmp_path / "model")
