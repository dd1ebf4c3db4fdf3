"""A fit that was interrupted or killed, and continued from its checkpoint, has the weights of one that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from kru.estimators import KRUClassifier, KRUForecaster, KRULanguageModel, KRURegressor, load
from kru.estimators.fitting import interrupted_estimator
from kru.training.folder import CHECKPOINT
from kru.training.interrupt import Interrupted, Interruptible

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2, 12))
SERIES = np.sin(np.arange(120) / 5) + 0.1 * RNG.normal(size=120)
CASES = {
    "classifier": (
        KRUClassifier(units=8, steps=60, validation_fraction=0.2, dropout=0.2, average=0.9, random_state=3),
        (X, X[:, 0, 0] > 0),
    ),
    "regressor": (KRURegressor("kru-lstm", 6, epochs=20, patience=30, random_state=3), (X, X[:, 0].mean(1))),
    "sounds": (
        KRUClassifier(
            units=8,
            features={"kind": "log-mel", "filters": 6},
            sample_rate=8000,
            augment=2,
            steps=40,
            random_state=3,
        ),
        (RNG.normal(size=(6, 1, 400)), list("ababab")),
    ),
    "forecaster, while it chooses": (KRUForecaster(3, units=8, steps=40, random_state=3), (SERIES,)),
    "forecaster, at the end": (KRUForecaster(3, units=8, steps=20, random_state=3), (SERIES,)),
    "text": (KRULanguageModel(units=8, steps=40, random_state=3), ("the cat sat on the mat. " * 60,)),
}
"""Estimator and data; training is interrupted at its 27th step."""


def weights(model) -> dict[str, torch.Tensor]:
    return model.network_.state_dict()


def same(a, b) -> bool:
    return all(torch.equal(weights(a)[name], weights(b)[name]) for name in weights(b))


@pytest.mark.parametrize("name", list(CASES))
def test_an_interrupted_fit_continues_exactly(name: str, tmp_path: Path, monkeypatch) -> None:
    original, data = CASES[name]
    settings = original.get_params()
    whole = type(original)(**settings).fit(*data)
    folder = tmp_path / "training"
    first = type(original)(**{**settings, "folder": folder})
    count = 0

    def check(self) -> None:
        nonlocal count
        count += 1
        if count == 27:
            raise Interrupted(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Interruptible, "check", check)
        with pytest.warns(UserWarning, match="fit: interrupted after"):
            first.fit(*data)
    assert not same(first, whole)
    first.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").folder is None
    # The file alone says what was fitted, in another process too.
    again = interrupted_estimator(folder)
    assert again.get_params() == {**settings, "folder": None}
    again.set_params(folder=str(folder), warm_start=True).fit(*data)
    assert same(again, whole)
    assert again.n_steps_ == whole.n_steps_
    if isinstance(again, KRUForecaster):
        np.testing.assert_array_equal(again.residuals_, whole.residuals_)
        np.testing.assert_array_equal(again.predict(), whole.predict())


def test_other_data_or_settings_are_not_continued(tmp_path: Path) -> None:
    y = X[:, 0, 0] > 0
    settings = {"units": 8, "steps": 10, "random_state": 0, "folder": tmp_path, "warm_start": True}
    KRUClassifier(**settings).fit(X, y)
    plain = KRUClassifier(**{**settings, "folder": None}).fit(X[:30], y[:30])
    with pytest.warns(
        UserWarning, match=r"checkpoint\.safetensors is of a fit with other data; training does not"
    ):
        assert same(KRUClassifier(**settings).fit(X[:30], y[:30]), plain)
    with pytest.warns(UserWarning, match="is of a fit with other network and training;"):
        KRUClassifier(**{**settings, "units": 6, "learning_rate": 1e-3}).fit(X[:30], y[:30])
    # A complete checkpoint is the fitted model; a larger budget continues from it.
    (tmp_path / CHECKPOINT).unlink()
    first = KRUClassifier(**settings).fit(X, y)
    assert same(KRUClassifier(**settings).fit(X, y), first)
    assert KRUClassifier(**{**settings, "steps": 15}).fit(X, y).n_steps_ == 15
    with pytest.raises(ValueError, match="folder: expected a path or None, got 3"):
        KRUClassifier(**{**settings, "folder": 3}).fit(X, y)


def test_files_that_are_no_checkpoints_are_named(tmp_path: Path) -> None:
    assert interrupted_estimator(tmp_path) is None
    assert interrupted_estimator(tmp_path / "none") is None
    (tmp_path / CHECKPOINT).write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors: expected a whole safetensors file"):
        interrupted_estimator(tmp_path)


def test_a_killed_fit_continues_exactly(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=X[:, 0, 0] > 0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KRU_NUM_THREADS": "1"}
    code = (
        "import sys, kru.estimators.fitting as fitting; from kru.lab.cli import main;"
        "fitting.CHECKPOINT_SECONDS = float(sys.argv[1]); sys.exit(main(sys.argv[2:]))"
    )
    options = ["fit", "d.npz", "--units", "16", "--steps", "300", "--quiet", "--seed", "5"]

    def start(seconds: str, name: str, *more: str) -> subprocess.Popen:
        command = [sys.executable, "-c", code, seconds, *options, "-o", name, *more]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)

    process = start("0.02", "a.safetensors")
    checkpoint = tmp_path / "a.safetensors.training" / CHECKPOINT
    # The third checkpoint is past the first step.
    seen: set[int] = set()
    while len(seen) < 3 and process.poll() is None:
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_ino)
        time.sleep(0.005)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "a.safetensors").exists()
    for name, *more in (("a.safetensors", "--warm-start"), ("b.safetensors",)):
        process = start("30", name, *more)
        process.communicate(timeout=300)
        assert process.returncode == 0
    assert same(load(tmp_path / "a.safetensors"), load(tmp_path / "b.safetensors"))
    assert not checkpoint.parent.exists()
