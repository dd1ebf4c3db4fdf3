"""Estimators that read sounds: features are part of the model, also in a file and in a stream."""

import re

import numpy as np
import pytest
import torch
from sklearn.base import clone

from kru.estimators import KRUClassifier, KRURegressor, load
from kru.estimators.task import Classification
from kru.lab.cli import main

from .test_files import write_wav

RATE = 8000


def tones(count: int, seed: int, channels: int = 1) -> tuple[list[np.ndarray], np.ndarray]:
    """Short hums with noise, high or low, of unequal lengths."""
    rng = np.random.default_rng(seed)
    y = np.array(["low", "high"] * (count // 2))
    sounds = []
    for label in y:
        time = np.arange(rng.integers(600, 1500)) / RATE
        tone = np.sin(2 * np.pi * (300 if label == "low" else 900) * time * rng.uniform(0.9, 1.1))
        sounds.append(0.3 * tone + 0.1 * rng.normal(size=(channels, len(time))))
    return sounds, y


@pytest.fixture(scope="module")
def fitted() -> KRUClassifier:
    X, y = tones(20, 0)
    model = KRUClassifier(units=16, features="mfcc", sample_rate=RATE, augment=1, steps=30, random_state=0)
    return model.fit(X, y)


def test_sounds_are_classified_saved_and_streamed(fitted, tmp_path) -> None:
    X, y = tones(10, 1)
    assert fitted.score(X, y) >= 0.9
    fitted.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.sound_ == fitted.sound_
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    stream = again.stream()
    said = [stream.step(sample) for sample in X[0][0]]
    assert said[: again.sound_.window - 1] == [None] * (again.sound_.window - 1)
    assert said[-1] == fitted.predict(X[:1])[0]
    np.testing.assert_allclose(stream.probabilities, fitted.predict_proba(X[:1])[0], atol=1e-6)
    stream.reset()
    assert stream.step(0.1) is None
    with pytest.raises(ValueError, match="x: expected finite values"):
        stream.step(np.nan)


def test_two_channels_and_own_settings(tmp_path) -> None:
    X, y = tones(8, 0, channels=2)
    features = {"kind": "log-mel", "hop": 0.02, "filters": 10}
    model = clone(KRURegressor(units=8, features=features, sample_rate=RATE, steps=3, random_state=0))
    model.fit(X, (y == "low").astype(float))
    assert (model.n_channels_, len(model.scaling_.mean), model.sound_.hop) == (2, 20, 160)
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "m.safetensors").predict(X), model.predict(X))
    with pytest.raises(ValueError, match="X: expected 2 channels, got 1"):
        model.predict(tones(2, 0)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample_rate": None}, "sample_rate: expected the samples in a second, got None"),
        ({"features": None}, "sample_rate: expected None without features, got 8000"),
        ({"features": None, "sample_rate": None}, "augment: expected 0 without features of sounds, got 1"),
        ({"features": {"kind": "mfcc", "colour": 3}}, "features: expected some of kind, window"),
        ({"features": "mffc"}, "features: expected one of mfcc, log-mel, got 'mffc'"),
        ({"augment": -1}, "augment: expected an integer of at least 0, got -1"),
        ({"symbols": True}, "features: expected None for symbols, got some"),
        ({"missing": "mask"}, "missing: expected 'error' with features of sounds, got 'mask'"),
    ],
)
def test_settings_that_do_not_go_together(settings, message) -> None:
    X, y = tones(2, 0)
    model = KRUClassifier(**{"features": "mfcc", "sample_rate": RATE, "augment": 1, "steps": 1, **settings})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_short_sounds_are_named(fitted) -> None:
    with pytest.raises(ValueError, match="X: expected at least 200 samples, one window, got 199 in case 1"):
        fitted.predict([np.zeros(200), np.zeros(199)])


def test_variants_of_what_is_held_out_are_not_trained_on() -> None:
    cases, rounds = 5, 3
    inputs = np.arange(cases * rounds, dtype=np.float32)[None, :, None]
    task = Classification(
        inputs,
        np.ones(cases * rounds, dtype=np.int64),
        np.arange(cases),
        weights=np.array([1.0, 1, 0, 1, 1]),
        held_out=np.array([1]),
        input_size=1,
        output_size=cases,
    )
    batch = task.take("train", np.arange(task.size("train")))
    assert sorted(batch.inputs[0, :, 0].tolist()) == [0, 3, 4, 5, 8, 9, 10, 13, 14]
    torch.testing.assert_close(batch.targets, batch.inputs[0, :, 0].long() % cases)
    assert batch.weights.mean() == 1
    assert task.take("valid", np.arange(task.size("valid"))).inputs.flatten().tolist() == [1]


def test_folders_of_sounds_from_the_command_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for part, seed in (("train", 0), ("test", 1)):
        for index, (sound, label) in enumerate(zip(*tones(10, seed), strict=True)):
            frames = (20_000 * sound[0]).astype("<i2").tobytes()
            write_wav(tmp_path / part / label / f"{index}.wav", frames, 2)
    fit = ["fit", "train", "--units", "8", "--steps", "20", "--quiet", "-o", "m.safetensors"]
    assert main([*fit, "--test", "test", "--augment", "1"]) == 0
    said = capsys.readouterr()
    assert "features: mfcc, 13 values every 10 ms (--features chooses others)" in said.err
    assert "accuracy" in said.out
    assert main([*fit, "--warm-start"]) == 0
    assert main([*fit, "--warm-start", "--features", "raw"]) == 2
    assert "features: expected mfcc as in m.safetensors, got raw" in capsys.readouterr().err
    assert main(["predict", "m", "test"]) == 0
    predicted = re.search(r"^low/0.wav,(low|high)$", capsys.readouterr().out, re.MULTILINE)
    assert predicted
    assert main(["predict", "m", "test/low/0.wav"]) == 0
    assert capsys.readouterr().out == f"case,prediction\n0.wav,{predicted[1]}\n"
    assert main([*fit, "--features", "log-mel"]) == 0
    write_wav(tmp_path / "other" / "a.wav", bytes(4000), 2, rate=16_000)
    assert main(["predict", "m", "other"]) == 2
    assert "other: expected sounds of 8000 Hz as in the fit, got 16000 Hz" in capsys.readouterr().err
    write_wav(tmp_path / "other" / "a.wav", bytes(20), 2)
    assert main(["predict", "m", "other"]) == 2
    assert "other/a.wav: expected at least 200 samples, one window, got 10" in capsys.readouterr().err
    np.savez("d.npz", X=np.zeros((4, 1, 900)), y=[0, 1, 0, 1])
    assert main(["evaluate", "m", "d.npz"]) == 2
    assert "d.npz: expected a folder of WAV files, whose log-mel the model reads" in capsys.readouterr().err
    assert main(["fit", "d.npz", "--features", "mfcc", "-o", "n.safetensors"]) == 2
    assert "features: expected a folder of WAV files for mfcc, got d.npz" in capsys.readouterr().err
