"""Fitting, streaming, saving and continuing."""

import json
import os
import pickle
import signal
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from kru.estimators import KRUClassifier, KRURegressor, load
from kru.estimators.saving import KEY

pytestmark = pytest.mark.usefixtures("one_thread")


def waves(cases: int = 24, channels: int = 2, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Slow and fast waves of unequal lengths."""
    rng = np.random.default_rng(seed)
    labels = np.arange(cases) % 2
    X = []
    for label in labels:
        time = np.arange(rng.integers(20, 40))
        phase = rng.uniform(0, 6, size=(channels, 1))
        X.append(np.sin((0.2 + 0.4 * label) * time + phase) + 0.1 * rng.normal(size=(channels, len(time))))
    return X, np.array(["slow", "fast"])[labels]


def small(**changes: object) -> KRUClassifier:
    return KRUClassifier(**{"units": 8, "steps": 80, "learning_rate": 0.03, "random_state": 0, **changes})


def weights(model) -> list[torch.Tensor]:
    return list(model.network_.state_dict().values())


@pytest.mark.parametrize("kind", ["kru-gru", "kru-lstm", "kru", "lstm"])
@pytest.mark.parametrize("readout", ["mean", "last"])
def test_it_learns_and_a_stream_ends_at_the_prediction(kind, readout):
    X, y = waves()
    model = small(kind=kind, readout=readout, steps=150).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.classes_.tolist() == ["fast", "slow"]
    probabilities = model.predict_proba(X)
    stream = model.stream()
    for case in (0, 1, 5):
        stream.reset()
        labels = [stream.step(x) for x in X[case].T]
        assert labels[-1] == model.predict(X)[case]
        np.testing.assert_allclose(stream.probabilities, probabilities[case], atol=1e-5)
        # So far means so far: after ten steps it is what the first ten steps give.
        assert labels[9] == model.predict([X[case][:, :10]])[0]


def test_two_directions_layers_and_missing_values():
    X, y = waves()
    X = [x.copy() for x in X]
    X[0][1, 3] = np.nan
    model = small(bidirectional=True, layers=2, missing="mask").fit(X, y)
    together = model.predict_proba(X)
    alone = np.concatenate([model.predict_proba([x]) for x in X])
    np.testing.assert_allclose(together, alone, atol=1e-5)  # padding is never read
    with pytest.raises(ValueError, match="stream: expected an estimator with bidirectional=False"):
        model.stream()
    with pytest.raises(ValueError, match="NaN in case 0, channel 1, time 3"):
        small().fit(X, y)


def test_the_same_seed_gives_the_same_weights_and_leaves_the_generator_alone():
    X, y = waves()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = small().fit(X, y)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    second = small().fit(X, y)
    other = small(random_state=1).fit(X, y)
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(first), weights(other), strict=True))


@pytest.mark.parametrize("labels", [[3, 7], [True, False], ["no", "yes"], [1.0, 2.0]])
def test_labels_of_any_type_come_back_from_a_file(labels, tmp_path):
    X, y = waves(12)
    y = np.array(labels)[(y == "fast").astype(int)]
    model = small(steps=5, class_weight={labels[0]: 1.0, labels[1]: 2.0}).fit(X, y)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = load(path)
    assert isinstance(loaded, KRUClassifier)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


def test_symbols(tmp_path):
    rng = np.random.default_rng(0)
    X = ["".join(rng.choice(list("ab" if i % 2 else "abc"), size=rng.integers(8, 15))) for i in range(40)]
    y = np.array(["c" in x for x in X])
    model = small(symbols=True, steps=150).fit(X, y)
    assert model.score(X, y) > 0.9
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba([*X, "abz"]), model.predict_proba([*X, "abz"]))
    stream = loaded.stream()
    assert [stream.step(symbol) for symbol in X[0]][-1] == model.predict(X[:1])[0]


def test_regression_of_several_targets(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2, 15))
    y = 1000 + 50 * X.mean(2)
    model = KRURegressor(units=16, steps=300, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    stream = model.stream()
    for x in X[0].T:
        value = stream.step(x)
    np.testing.assert_allclose(value, model.predict(X[:1])[0], rtol=1e-5)


def test_sample_weights_decide():
    X, y = waves(20)
    wrong = y.copy()
    wrong[:10] = np.where(y[:10] == "slow", "fast", "slow")
    model = small(steps=150).fit(X, wrong, sample_weight=np.r_[np.zeros(10), np.ones(10)])
    assert model.score(X, y) > 0.9


def test_max_parameters():
    X, y = waves(8)
    for limit in (400, 1000, 5000):
        model = small(units=None, max_parameters=limit, steps=2).fit(X, y)
        assert limit / 2 < model.n_parameters_ <= limit
        model = small(units=16, max_parameters=limit, steps=2).fit(X, y)
        assert model.n_parameters_ <= limit
    assert model.network_settings_.factors == (16,)
    with pytest.raises(ValueError, match="max_parameters: expected at least"):
        small(units=64, max_parameters=50).fit(X, y)


def test_validation_chooses_the_weights():
    X, y = waves(40)
    model = small(validation_fraction=0.25, patience=3).fit(X, y)
    assert model.n_steps_ <= 80
    assert model.score(X, y) > 0.7


def test_search_pipelines_and_frames():
    X = np.stack([x[0][:20] for x in waves()[0]])
    y = waves()[1]
    search = GridSearchCV(small(steps=20), {"units": [4, 8], "readout": ["mean", "last"]}, cv=2).fit(X, y)
    assert search.best_estimator_.network_settings_.units == search.best_params_["units"]
    pipeline = make_pipeline(StandardScaler(), small()).fit(X, y)
    assert pipeline.score(X, y) > 0.8
    three = np.stack([x[:, :20] for x in waves()[0]])
    assert make_pipeline(FunctionTransformer(np.abs), clone(small())).fit(three, y).predict(three).shape == (
        24,
    )
    rows = [(i, t, *three[i, :, t]) for i in range(24) for t in range(20)]
    frame = pd.DataFrame(rows, columns=["case", "time", "a", "b"])
    in_order = small().fit(three, y)
    from_frame = small().fit(frame, pd.Series(y, index=range(24))[::-1])
    np.testing.assert_array_equal(in_order.predict_proba(three), from_frame.predict_proba(frame))


def test_an_aeon_pipeline():
    pytest.importorskip("aeon")
    from aeon.pipeline import make_pipeline as aeon_pipeline
    from aeon.transformations.collection import Normalizer

    X = np.stack([x[:1, :20] for x in waves()[0]])
    y = waves()[1]
    pipeline = aeon_pipeline(Normalizer(), small())
    assert pipeline.fit(X, y).score(X, y) > 0.8
    three = np.stack([x[:, :20] for x in waves()[0]])
    assert make_pipeline(Normalizer(), small()).fit(three, y).score(three, y) > 0.8


def test_ctrl_c_keeps_the_weights_and_warm_start_continues_exactly():
    X, y = waves()
    whole = small(steps=400).fit(X, y)
    model = small(steps=400, warm_start=True)
    timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.warns(UserWarning, match=r"fit: interrupted after \d+ of 400 steps"):
        model.fit(X, y)
    timer.join()
    assert 0 < model.n_steps_ < 400
    assert model.predict(X).shape == (24,)
    assert pickle.loads(pickle.dumps(model)).predict(X).shape == (24,)
    model.fit(X, y)
    assert model.n_steps_ == 400
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(whole), strict=True))


def test_warm_start_starts_from_the_weights():
    X, y = waves()
    model = small(warm_start=True).fit(X, y)
    before = model.loss_
    model.set_params(steps=1, learning_rate=1e-12).fit(X, y)
    assert model.loss_ < 2 * before + 0.1
    with pytest.raises(ValueError, match="y: expected the classes of the last fit"):
        model.fit(X, np.where(y == "slow", "a", "b"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y = waves(8)
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    small(steps=2).fit(X, y).save(path)
    return path


def rewrite(source, target, change_tensors=None, change_settings=None):
    from safetensors import safe_open

    tensors = load_file(source)
    with safe_open(source, "np") as file:
        metadata = file.metadata()
    if change_tensors:
        change_tensors(tensors)
    if change_settings:
        settings = json.loads(metadata[KEY])
        change_settings(settings)
        metadata[KEY] = json.dumps(settings)
    save_file(tensors, target, metadata=metadata)
    return target


def test_damaged_files_are_refused(saved, tmp_path):
    path = tmp_path / "model"

    def one_value(tensors):
        tensors["network.output.bias"][0] += 1e-3

    with pytest.raises(ValueError, match="the checksum differs"):
        load(rewrite(saved, path, one_value))
    with pytest.raises(ValueError, match="the checksum differs"):
        load(rewrite(saved, path, None, lambda s: s["fitted"].update(channels=3)))
    path.write_bytes(saved.read_bytes()[:200])
    with pytest.raises(ValueError, match="model: expected an estimator saved by this package"):
        load(path)
    save_file({"a": np.zeros(2)}, path)
    with pytest.raises(ValueError, match="it has no settings of an estimator"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["network"].update(units=2**24), "expected shapes? "),
        (lambda s: s["network"].update(units=100_003, factors=[]), "expected shapes? "),
        (lambda s: s["network"].update(units=2**40), "expected units from 1 to"),
        (lambda s: s["network"].update(layers=10**6), "expected layers from 1 to 64"),
        (lambda s: s["network"].update(kind="os:system"), "expected a kind that is registered"),
        (lambda s: s["network"].update(kind=3), "kind of another type"),
        (lambda s: s.update({"class": "Popen"}), "expected one of KRUClassifier"),
        (lambda s: s.update(format=2), "expected format 1"),
        (lambda s: s.pop("fitted"), "fitted: missing"),
    ],
)
def test_files_are_checked_before_anything_is_built(saved, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load(rewrite(saved, tmp_path / "model", None, change))
