"""`kru fit --model echo-state`, and predict, evaluate and export on what it wrote."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kru.lab.cli import main
from kru.reservoir import EchoStateClassifier, EchoStateForecaster

from ..export.compiled import run, tool

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def motions(name: str, cases: int, numbers: bool = False) -> pd.DataFrame:
    parts = []
    for k in range(cases):
        steps, speed = 30 + k % 5, 0.3 + 0.5 * (k % 2)
        x = np.sin(speed * np.arange(steps) + RNG.uniform(0, 6))
        label: Any = speed if numbers else ["slow", "fast"][k % 2]
        parts.append(
            pd.DataFrame(
                {
                    "case": f"c{k}",
                    "time": np.arange(steps),
                    "x": x,
                    "y": RNG.normal(size=steps),
                    "label": label,
                }
            )
        )
    frame = pd.concat(parts)
    frame.to_csv(name, index=False)
    return frame


def test_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    motions("train.csv", 40)
    motions("test.csv", 10)
    fit = ["fit", "train.csv", "--model", "echo-state", "--target", "label", "--units", "32", "--leak", "0.8"]
    assert main([*fit, "--test", "test.csv", "-o", "m.safetensors"]) == 0
    said = capsys.readouterr().out
    assert "EchoStateClassifier, 32 units" in said
    assert "accuracy 1 on test.csv (10 of 10 cases)" in said
    assert EchoStateClassifier.load("m.safetensors").leak == 0.8
    assert main(["evaluate", "m", "test.csv"]) == 0
    assert "accuracy 1 on test.csv" in capsys.readouterr().out
    assert main(["predict", "m.safetensors", "test.csv", "--proba", "-o", "p.csv"]) == 0
    predicted = pd.read_csv("p.csv")
    assert predicted["prediction"].tolist() == ["slow", "fast"] * 5
    np.testing.assert_allclose(predicted["slow"] + predicted["fast"], 1)
    assert main(["export", "m.safetensors", "--to", "c99", "-o", "device"]) == 0
    run(tool("gcc"), "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "device/model.c")


def test_regressor(capsys: pytest.CaptureFixture[str]) -> None:
    motions("train.csv", 40, numbers=True)
    fit = ["fit", "train.csv", "--model", "echo-state", "--target", "label", "--as", "regressor"]
    assert main([*fit, "--units", "32", "-o", "m.safetensors", "--test", "train.csv"]) == 0
    assert "R2 0.99" in capsys.readouterr().out
    assert main(["predict", "m.safetensors", "train.csv"]) == 0
    assert capsys.readouterr().out.startswith("case,prediction\nc0,")


def test_forecaster(capsys: pytest.CaptureFixture[str]) -> None:
    series = 100 + 5 * np.sin(0.2 * np.arange(500))
    pd.DataFrame({"day": np.arange(480), "sold": series[:480]}).to_csv("sales.csv", index=False)
    fit = ["fit", "sales.csv", "--model", "echo-state", "--target", "sold", "--time", "day", "--units", "32"]
    assert main([*fit, "-o", "m.safetensors"]) == 0
    capsys.readouterr()
    assert main(["predict", "m.safetensors", "--horizon", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "case,step,prediction"
    found = [float(line.split(",")[2]) for line in lines[1:]]
    np.testing.assert_allclose(found, series[480:], atol=0.05)
    assert main(["predict", "m.safetensors", "sales.csv", "-o", "p.csv"]) == 0
    np.testing.assert_allclose(pd.read_csv("p.csv")["prediction"], series[480:490], atol=0.05)
    assert main(["evaluate", "m.safetensors", "sales.csv"]) == 0
    said = capsys.readouterr().out
    assert "10 steps ahead on sales.csv (370 forecasts)" in said


@pytest.mark.parametrize("layers", [1, 2])
def test_backtest_is_predict_from_every_origin(layers: int) -> None:
    t = np.arange(300)
    X = np.cos(0.5 * t)[None]
    y = np.stack([np.sin(0.3 * t) + X[0], np.sin(0.2 * t) ** 3])
    model = EchoStateForecaster(24, layers=layers, ridge=1e-6, washout=40).fit(y, X)
    found, actual = model.backtest(y, X, horizon=3)
    assert found.shape == actual.shape == (300 - 3 - 41 + 1, 2, 3)
    for origin in (41, 120, 296, 297):
        known = X[:, : origin + 3]
        expected = model.predict(3, y[:, :origin], known)
        np.testing.assert_allclose(found[origin - 41], expected, atol=1e-9)
        np.testing.assert_array_equal(actual[origin - 41], y[:, origin : origin + 3])
    with pytest.raises(ValueError, match="y: expected at least 44 values"):
        model.backtest(y[:, :43], X[:, :43], horizon=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--model", "echo-state", "--epochs", "3"], "epochs: expected none for an echo state model, got 3"),
        (
            ["--model", "echo-state", "--as", "text"],
            "as: expected classifier, regressor, forecaster for an echo",
        ),
        (["--model", "echo-state", "--leak", "2"], "leak: expected numbers in (0, 1], got 2"),
        (["--model", "echo-state", "--missing", "mask"], "missing: expected error for an echo state model"),
        (["--spectral-radius", "0.5"], "spectral-radius: expected none for a classifier, got 0.5"),
    ],
)
def test_wrong_options(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    motions("train.csv", 4)
    assert main(["fit", "train.csv", "--target", "label", "-o", "m.safetensors", *given]) == 2
    assert message in capsys.readouterr().err
    assert not Path("m.safetensors").exists()


def test_a_horizon_is_for_echo_states_alone(capsys: pytest.CaptureFixture[str]) -> None:
    motions("train.csv", 10)
    fit = ["fit", "train.csv", "--model", "echo-state", "--target", "label", "--units", "8"]
    assert main([*fit, "-o", "m.safetensors"]) == 0
    assert main(["predict", "m.safetensors", "train.csv", "--horizon", "3"]) == 2
    assert "horizon: expected an EchoStateForecaster, got EchoStateClassifier" in capsys.readouterr().err
