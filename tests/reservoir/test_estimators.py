"""The echo state estimators: they learn, stream as they predict, store exactly, and say what is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from kru.export import onnx
from kru.reservoir import EchoStateClassifier, EchoStateForecaster, EchoStateRegressor

RNG = np.random.default_rng(0)


def narma(steps: int, order: int = 10) -> tuple[np.ndarray, np.ndarray]:
    u = np.random.default_rng(1).uniform(0, 0.5, steps)
    y = np.zeros(steps)
    for t in range(order, steps):
        y[t] = 0.3 * y[t - 1] + 0.05 * y[t - 1] * y[t - order : t].sum() + 1.5 * u[t - order] * u[t - 1] + 0.1
    return u[None], y[None]


def waves(cases: int, unequal: bool) -> tuple[list[np.ndarray], np.ndarray]:
    y = np.arange(cases) % 3
    steps = 50 + (np.arange(cases) % 7 if unequal else np.zeros(cases, int))
    X = [
        np.stack([np.sin((0.2 + 0.4 * k) * np.arange(t) + RNG.uniform(0, 6)), RNG.normal(0, 0.1, t)])
        for k, t in zip(y, steps, strict=True)
    ]
    return X, np.array(["a", "b", "c"])[y]


def test_narma_10_is_learnt() -> None:
    u, y = narma(3000)
    model = EchoStateRegressor(200, spectral_radius=0.9, input_scaling=0.1, random_state=0)
    model.fit(u[:, :2000], y[:, :2000])
    predicted = model.predict(u)
    assert predicted.shape == y.shape
    error = np.sqrt(np.mean((predicted[0, 2000:] - y[0, 2000:]) ** 2)) / y[0, 2000:].std()
    assert error < 0.25
    assert model.score(u, y) > 0.8


@pytest.mark.parametrize("solver", ["conjugate-gradients", "random-features"])
def test_other_solvers_come_near_the_normal_equations(solver: str) -> None:
    u, y = narma(1500)
    models = [
        EchoStateRegressor(64, input_scaling=0.2, ridge=1e-2, solver=one, n_features=64)
        for one in ("normal", solver)
    ]
    exact, other = (np.mean((model.fit(u, y).predict(u)[0, 100:] - y[0, 100:]) ** 2) for model in models)
    assert other < 1.5 * exact


def test_the_output_can_be_fed_back() -> None:
    t = np.arange(900)
    X, y = np.sin(0.01 * t)[None], (np.sin(0.2 * t) * (1 + 0.1 * np.sin(0.01 * t)))[None]
    model = EchoStateRegressor(100, feedback=True, ridge=1e-6).fit(X, y)
    predicted = model.predict(X)
    stream = model.stream()
    assert predicted.shape == y.shape
    np.testing.assert_allclose([stream.step(value) for value in X[0, :50]], predicted[0, :50], atol=1e-9)


def test_one_target_for_each_case() -> None:
    X, labels = waves(60, unequal=True)
    y = (labels == "b") * 2.0 - 1
    model = EchoStateRegressor(64, validation="leave-one-out").fit(X[:40], y[:40])
    assert model.predict(X[40:]).shape == (20,)
    assert model.score(X[40:], y[40:]) > 0.8
    stream = model.stream()
    for row in X[41].T:
        last = stream.step(row)
    assert last == pytest.approx(model.predict(X[41:42])[0], abs=1e-9)


def test_unequal_series_with_targets_at_each_step() -> None:
    X = [RNG.normal(size=(2, steps)) for steps in (300, 220)]
    y = [np.stack([case[0], np.roll(case[1], 1)]) for case in X]
    model = EchoStateRegressor(64).fit(X, y)
    predicted = model.predict(X)
    assert [case.shape for case in predicted] == [(2, 300), (2, 220)]
    assert model.score(X, y) > 0.9
    alone = model.predict(X[1][None])
    np.testing.assert_allclose(predicted[1], alone[0], atol=1e-9)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_forecaster_runs_free(layers: int) -> None:
    t = np.arange(1100)
    series = np.stack([np.sin(0.2 * t), 3 + np.cos(0.2 * t) + 0.3 * np.sin(0.4 * t)])
    model = EchoStateForecaster(150, layers=layers).fit(series[:, :1000])
    forecast = model.predict(100)
    assert forecast.shape == (2, 100)
    assert np.abs(forecast - series[:, 1000:]).max() < 0.05
    np.testing.assert_allclose(model.predict(5, series[:, :1000]), forecast[:, :5], atol=1e-6)
    stream = model.stream()
    steps = np.stack([stream.step(column) for column in series.T[:300]], 1)
    np.testing.assert_allclose(steps, model.one_step(series[:, :301]), atol=1e-9)


def test_known_inputs_drive_a_forecast() -> None:
    known = np.sin(0.3 * np.arange(700)) ** 3 + RNG.normal(0, 0.3, 700)
    y = np.zeros(700)
    for t in range(1, 700):
        y[t] = 0.7 * y[t - 1] + known[t]
    model = EchoStateForecaster(64).fit(y[:600], X=known[:600])
    forecast = model.predict(100, X=known[600:])
    assert np.abs(forecast - y[600:]).max() < 0.2 * y.std()
    again = model.predict(100, y[:600], X=known)
    np.testing.assert_allclose(again, forecast, atol=1e-6)
    with pytest.raises(ValueError, match="X: expected 1 known inputs, got 0"):
        model.predict(3)


@pytest.mark.parametrize("pooling", ["moments", "mean"])
def test_a_classifier_takes_unequal_lengths(pooling: str) -> None:
    X, y = waves(90, unequal=True)
    model = EchoStateClassifier(64, pooling=pooling).fit(X[:60], y[:60])
    assert model.score(X[60:], y[60:]) > (0.9 if pooling == "moments" else 0.4)
    probabilities = model.predict_proba(X[60:])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (model.classes_[probabilities.argmax(1)] == model.predict(X[60:])).all()
    stream = model.stream()
    for row in X[60].T:
        label = stream.step(row)
    assert label == model.predict(X[60:61])[0]


def test_they_are_scikit_learns() -> None:
    X, y = waves(60, unequal=False)
    stacked = np.stack(X)
    search = GridSearchCV(EchoStateClassifier(32), {"spectral_radius": [0.5, 0.9]}, cv=2).fit(stacked, y)
    assert search.best_score_ > 0.8
    copy = clone(search.best_estimator_)
    assert copy.get_params() == search.best_estimator_.get_params()
    flat = EchoStateClassifier(32).fit(stacked[:, 0], y)
    assert flat.score(stacked[:, 0], y) > 0.9


def fitted(kind: str) -> tuple[Any, Any]:
    X, labels = waves(30, unequal=True)
    series = np.sin(0.2 * np.arange(400))
    if kind == "classifier":
        return EchoStateClassifier(16, leak=0.5).fit(X, labels), X
    if kind == "regressor":
        return EchoStateRegressor(
            16, field="complex", solver="random-features", n_features=16, washout=10
        ).fit(X, [case[0] for case in X]), X
    return EchoStateForecaster(16, layers=2).fit(series), 20


@pytest.mark.parametrize("kind", ["classifier", "regressor", "forecaster"])
def test_a_stored_model_predicts_the_same(kind: str, tmp_path: Path) -> None:
    model, X = fitted(kind)
    path = str(tmp_path / "model.safetensors")
    model.save(path)
    loaded = type(model).load(path)
    for before, after in zip(model.predict(X), loaded.predict(X), strict=True):
        np.testing.assert_array_equal(before, after)
    other = EchoStateForecaster if kind == "classifier" else EchoStateClassifier
    with pytest.raises(ValueError, match=f"expected a {other.__name__}"):
        other.load(path)
    content = bytearray(Path(path).read_bytes())
    content[-1] ^= 1
    Path(path).write_bytes(content)
    with pytest.raises(ValueError, match="expected contents with the SHA-256 in its header, got others"):
        type(model).load(path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda u, y: EchoStateRegressor(8, leak=0.0).fit(u, y), r"leak: expected numbers in \(0, 1\]"),
        (lambda u, y: EchoStateRegressor(8, spectral_radius=-1).fit(u, y), "spectral_radius: expected a finite"),
        (lambda u, y: EchoStateRegressor(8, washout=300).fit(u, y), "washout: .* which has 300, got 300"),
        (lambda u, y: EchoStateRegressor(8, ridge=0.0).fit(0 * u, y), "ridge: the 9 features .* linearly dependent"),
        (lambda u, y: EchoStateRegressor(8).fit(u * np.nan, y), "X: expected finite values, got NaN in case 0"),
        (lambda u, y: EchoStateRegressor(8).fit(u, y * np.nan), "y: expected finite values, got NaN in case 0"),
        (lambda u, y: EchoStateRegressor(8).fit(u, y[None, :, :200]), "y: expected a target for each step"),
        (lambda u, y: EchoStateRegressor(8).fit(u, [1.0, 2.0]), "y: expected 1 targets, one for each case"),
        (lambda u, y: EchoStateForecaster(8).fit(y).predict(3, y[0, :50]), "washout: expected fewer steps"),
        (lambda u, y: EchoStateForecaster(8).fit(y).predict(0), "horizon: expected at least 1"),
        (lambda u, y: EchoStateClassifier(8).fit(u, ["a"]), "y: expected at least two classes"),
        (lambda u, y: EchoStateClassifier(8, pooling="biggest").fit([u, u], ["a", "b"]), "pooling: expected one of"),
        (lambda u, y: EchoStateRegressor(8, solver="lu").fit(u, y), "solver: expected one of"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Any, message: str) -> None:
    u, y = narma(300)
    with pytest.raises(ValueError, match=message):
        call(u, y)


def test_too_few_steps_after_the_washout() -> None:
    u, y = narma(105)
    with pytest.raises(ValueError, match="folds: expected at least two steps in each of 5 folds, got 5"):
        EchoStateRegressor(8).fit(u, y)
    with pytest.raises(ValueError, match="washout: expected at least two steps"):
        EchoStateRegressor(8, ridge=1.0, washout=104).fit(u, y)


@pytest.mark.parametrize("kind", ["regressor", "forecaster"])
def test_exported_to_onnx_it_predicts_the_same(kind: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    u, y = narma(600)
    if kind == "regressor":
        model: Any = EchoStateRegressor(32, input_scaling=0.2, ridge=1e-2, input_to_readout=False).fit(u, y)
        expected = model.predict(u)[0]
    else:
        model = EchoStateForecaster(32, ridge=1e-2, input_to_readout=False).fit(u[0])
        expected = np.append(model.one_step(u[0]), model.predict(1))
    onnx(model, tmp_path / "model")
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model_sequence.onnx")
    [found] = session.run(["output"], {"input": u[0, :, None, None].astype(np.float32)})
    np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, t: s["parameters"].update(units=10**9), "expected settings of at most"),
        (lambda s, t: s["parameters"].update(units=49999, factors=None), "expected settings of at most"),
        (lambda s, t: s["parameters"].update(layers=10**6), "expected settings of at most"),
        (lambda s, t: s["parameters"].update(units="8"), "expected units, layers and n_features"),
        (lambda s, t: s.update(inputs=-1), "expected settings of at most"),
        (lambda s, t: s.pop("fitted"), "expected the settings of an echo state model"),
        (lambda s, t: t.pop("readout.weight"), "readout.weight: expected"),
        (lambda s, t: t["mean"].fill_(float("nan")), "mean: expected finite numbers"),
        (lambda s, t: s["parameters"].update(washout="x"), "washout missing or of another type"),
        (lambda s, t: s["parameters"].update({"x" * 9999: 1}), "unexpected keyword argument"),
        (lambda s, t: s["fitted"].pop("per_step_"), "per_step_ missing or of another type"),
        (lambda s, t: s["fitted"].update(flat_="yes"), "flat_ missing or of another type"),
        (lambda s, t: t.update(x=torch.zeros(1)), "x: expected none, got"),
        (lambda s, t: t.update(mean=torch.zeros(7, dtype=torch.float64)), "mean: expected"),
        (lambda s, t: t.update({"readout.weight": torch.zeros(1, 3)}), "readout.weight: expected"),
        (lambda s, t: t["scale"].zero_(), "scale: expected numbers above zero"),
        (lambda s, t: t.update({"reservoir.bias_l0": torch.zeros(3)}), "reservoir.bias_l0: expected"),
    ],
)
def test_files_that_ask_for_too_much_or_lack_something(change: Any, message: str, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from kru.training.checksum import checksum

    path = str(tmp_path / "m.safetensors")
    EchoStateRegressor(8, ridge=1.0).fit(*narma(300)).save(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    settings, tensors = json.loads(metadata["settings"]), load_file(path)
    change(settings, tensors)
    text = json.dumps(settings)
    save_file(tensors, path, {**metadata, "settings": text, "sha256": checksum(tensors, text)})
    with pytest.raises(ValueError, match=message) as caught:
        EchoStateRegressor.load(path)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)
