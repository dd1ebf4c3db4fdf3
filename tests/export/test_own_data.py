"""From a file to predictions and to programs that agree with them."""

import csv
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from kru.estimators import KRUClassifier, KRULanguageModel, KRURegressor, load
from kru.estimators.files import read
from kru.estimators.sources import read_unlabelled
from kru.export import c99, javascript, onnx
from kru.export.source import network_from
from kru.export.torch_modules import Sequence, Step
from kru.lab.cli import main

from .compiled import Compiled, run, tool


def javascript_results(file: Path, cases: list[list]) -> list[dict]:
    """The last result of each case; a NaN is written as null."""
    script = (
        f"import {{ run }} from {json.dumps(file.as_uri())};"
        f"const cases = {json.dumps(cases)}.map((c) => c.map((x) => Array.isArray(x) ? x.map((v) => v ?? NaN) : x));"
        "console.log(JSON.stringify(cases.map(run).map((r) => ({ ...r, outputs: Array.from(r.outputs) }))));"
    )
    path = file.parent / "script.mjs"
    path.write_text(script)
    return json.loads(run(tool("node"), path))


def compiled_results(model: Compiled, cases: list[np.ndarray]) -> list[np.ndarray]:
    outputs = []
    for case in cases:
        model.reset()
        outputs.append([model.step(torch.tensor(x, dtype=torch.float32)) for x in case.T][-1])
    return outputs


def label_of(model: Compiled, y: np.ndarray) -> str:
    model.library.model_label.restype = ctypes.c_char_p
    return model.library.model_label(y.ctypes.data_as(ctypes.c_void_p)).decode()


def test_basic_motions_through_all_commands(tmp_path, capsys) -> None:
    aeon = pytest.importorskip("aeon")
    folder = Path(aeon.__file__).parent / "datasets" / "data" / "BasicMotions"
    train, test = (str(folder / f"BasicMotions_{part}.ts") for part in ("TRAIN", "TEST"))
    model, predictions = tmp_path / "m.safetensors", tmp_path / "p.csv"
    options = ["--steps", "40", "--units", "32", "--quiet", "--test", test]
    assert main(["fit", train, *options, "-o", str(model)]) == 0
    fitted = capsys.readouterr()
    assert "classifier: its targets are 4 labels" in fitted.err
    score = re.search(r"accuracy ([\d.]+) on .*\((\d+) of 40 cases\)", fitted.out)
    assert score
    assert float(score[1]) > 0.6
    assert main(["evaluate", str(tmp_path / "m"), test]) == 0
    assert score[0] in capsys.readouterr().out
    assert main(["predict", str(model), test, "--proba", "-o", str(predictions)]) == 0
    assert main(["predict", str(model), test, "--proba"]) == 0
    assert capsys.readouterr().out == predictions.read_text()
    header, *rows = csv.reader(predictions.read_text().splitlines())
    data = read(test)
    assert header == ["case", "prediction", *sorted(set(data.y))]
    assert sum(row[1] == label for row, label in zip(rows, data.y, strict=True)) == int(score[2])
    probabilities = np.array([row[2:] for row in rows], dtype=float)
    assert main(["export", str(model), "--to", "c99", "-o", str(tmp_path / "c")]) == 0
    assert main(["export", str(model), "--to", "js", "-o", str(tmp_path / "js")]) == 0
    state_bytes = int(re.search(r"State: (\d+) bytes", (tmp_path / "c" / "model.h").read_text())[1])

    class Written:
        files = (tmp_path / "c" / "model.h", tmp_path / "c" / "model.c")

    Written.state_bytes = state_bytes
    compiled = Compiled(Written)
    outputs = compiled_results(compiled, data.X)
    np.testing.assert_allclose(outputs, probabilities, rtol=0, atol=1e-5)
    assert [label_of(compiled, y) for y in outputs] == [row[1] for row in rows]
    found = javascript_results(tmp_path / "js" / "model.mjs", [case.T.tolist() for case in data.X])
    np.testing.assert_allclose([result["outputs"] for result in found], probabilities, rtol=0, atol=1e-5)
    assert [result["label"] for result in found] == [row[1] for row in rows]


def sequences(missing: bool) -> list[np.ndarray]:
    """Values of very different sizes, in cases of unequal lengths."""
    rng = np.random.default_rng(0)
    cases = [
        rng.normal([[1000.0], [0], [3]], [[5], [1], [0.01]], size=(3, length)) for length in (9, 1, 6, 12) * 4
    ]
    for case in cases if missing else []:
        case[rng.uniform(size=case.shape) < 0.2] = np.nan
    return cases


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize(("readout", "differences"), [("mean", True), ("last", True), ("last", False)])
def test_programs_agree_with_a_regressor(missing: str, readout: str, differences: bool, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    X = sequences(missing == "mask")
    y = np.array([[len(case), np.nan_to_num(case[0, 0], nan=990)] for case in X])
    settings = {"units": 12, "steps": 5, "random_state": 0}
    model = KRURegressor(readout=readout, differences=differences, missing=missing, **settings).fit(X, y)
    expected = model.predict(X)
    network = network_from(model)
    assert network.input_size == 3

    def near(actual) -> None:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)

    inputs = [torch.tensor(case.T, dtype=torch.float32) for case in X]
    with torch.no_grad():
        near([Sequence(network)(x[:, None])[0][0].numpy() for x in inputs])
    near(compiled_results(Compiled(c99(model, tmp_path / "c")), X))
    [file] = javascript(model, tmp_path / "js").files
    plain = [[[None if np.isnan(v) else v for v in x] for x in case.T.tolist()] for case in X]
    near([result["outputs"] for result in javascript_results(file, plain)])
    onnx(model, tmp_path / "o")
    whole = runtime.InferenceSession(tmp_path / "o" / "model_sequence.onnx")
    near([whole.run(["output"], {"input": x[:, None].numpy()})[0][0] for x in inputs])
    one = runtime.InferenceSession(tmp_path / "o" / "model_step.onnx")
    names = [value.name for value in one.get_outputs()]
    stepped, traced = [], []
    for x in inputs:
        shapes = {value.name: value.shape for value in one.get_inputs() if value.name != "input"}
        states = {
            name: np.zeros([size if isinstance(size, int) else 1 for size in shape], np.float32)
            for name, shape in shapes.items()
        }
        reference = [torch.from_numpy(state) for state in states.values()]
        for part in x:
            results = dict(zip(names, one.run(None, {"input": part[None].numpy(), **states}), strict=True))
            states = {name: results[f"{name}_next"] for name in states}
            output, *reference = Step(network)(part[None], *reference)
        stepped.append(results["output"][0])
        traced.append(output[0].numpy())
    near(stepped)
    near(traced)


def test_a_language_model_has_its_symbols_beside_the_program(tmp_path) -> None:
    text = "abcabcab" * 20
    model = KRULanguageModel(units=8, steps=5, random_state=0).fit(text)
    file, symbols = javascript(model, tmp_path / "js").files
    assert json.loads(symbols.read_text()) == ["a", "b", "c"]
    codes = model.vocabulary_.encode("abca").tolist()
    with torch.no_grad():
        expected = torch.softmax(model.network_(torch.tensor([3, *codes])[:, None])[0][-1, 0], -1)
    script = (
        f"import {{ run }} from {json.dumps(file.as_uri())};"
        f"console.log(JSON.stringify(Array.from(run({[3, *codes]}).at(-1).outputs)));"
    )
    found = json.loads(run(tool("node"), "--input-type=module", "-e", script))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_classifier_of_one_class(tmp_path) -> None:
    X = np.random.default_rng(0).normal(size=(4, 1, 5))
    model = KRUClassifier(units=8, steps=2, random_state=0).fit(X, ["only"] * 4)
    compiled = Compiled(c99(model, tmp_path / "c"))
    assert [label_of(compiled, y) for y in compiled_results(compiled, list(X))] == ["only"] * 4


GOOD = "case,time,x,label\na,1,0.5,up\na,2,0.7,up\nb,1,0.1,down\n"


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (GOOD.replace("0.7", "oops"), [], "d.csv: row 3, column 'x': expected a number, got 'oops'"),
        (
            GOOD.replace("0.7", ""),
            [],
            "d.csv: row 3, case a, column 'x': expected a number, got nothing; --missing mask accepts",
        ),
        (GOOD.replace("0.7", "inf"), [], "row 3, case a, column 'x': expected a finite number, got inf"),
        (GOOD.replace("a,2,0.7,up", "a,1,0.7,up"), [], "d.csv: expected one row for each time, got two"),
        (GOOD.replace("a,2,0.7,up", "a,2,0.7,down"), [], "d.csv: case a: expected one target, got 2"),
        (
            GOOD.replace("case,time", "subject,step"),
            [],
            "'subject': expected a number, got 'a' (--case and --time name such columns, --channels those to read)",
        ),
        (GOOD, ["--target", "lable"], "d.csv: expected a column 'lable', got case, time, x, label"),
        (GOOD, ["--channels", "z"], "d.csv: expected a column 'z'"),
        (GOOD, ["--as", "regressor"], "d.csv: case a: expected a number as target, got 'up'"),
        (GOOD, ["--as", "text", "--readout", "last"], "readout: expected none for a text, got last"),
        (GOOD, ["--bytes"], "bytes: expected --as text, got --as classifier"),
        (GOOD, ["--kind", "transformer"], "transformer"),
        (GOOD, ["--warm-start"], "warm-start: expected a fitted model to continue from, got none"),
        (GOOD, ["--test", "none.csv"], "none.csv: expected a file or a folder, got nothing there"),
    ],
)
def test_bad_data_is_one_line(content, arguments, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.csv").write_text(content)
    target = [] if "--target" in arguments else ["--target", "label"]
    command = ["fit", "d.csv", *target, "-o", "m.safetensors", "--steps", "1", "--quiet", *arguments]
    assert main(command) == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint.startswith("kru fit: ")
    assert message in complaint


def test_predictions_find_their_columns_again(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 5, 2))
    rows = [(c, t, *values[c, t], c % 2) for c in range(6) for t in range(5)]
    Path("d.csv").write_text("id,t,x,z,y\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    names = ["--target", "y", "--case", "id", "--time", "t"]
    short = ["--steps", "3", "--units", "8", "--quiet"]
    assert main(["fit", "d.csv", *names, *short, "-o", "m.safetensors"]) == 0
    assert load("m.safetensors").columns_.channels == ("x", "z")
    assert main(["predict", "m", "d.csv", "--proba"]) == 0
    expected = capsys.readouterr().out.split("case,", 1)[1]
    # In another order, with a column more, and without the target.
    Path("e.csv").write_text(
        "note,z,x,t,id\n" + "".join(f"hello,{z},{x},{t},{c}\n" for c, t, x, z, _ in rows)
    )
    assert main(["predict", "m", "e.csv", "--proba"]) == 0
    assert capsys.readouterr().out == f"case,{expected}"
    Path("f.csv").write_text("id,t,x\n0,1,2\n")
    assert main(["predict", "m", "f.csv"]) == 2
    assert "f.csv: expected a column 'z', got id, t, x" in capsys.readouterr().err
    assert main(["evaluate", "m"]) == 2
    assert "expected a file to measure the model on" in capsys.readouterr().err
    assert main(["fit", "d.csv", *short, "--warm-start", "-o", "m.safetensors"]) == 0
    assert main(["fit", "d.csv", "--units", "9", "--warm-start", "-o", "m.safetensors"]) == 2
    assert "units: expected 8 as in m.safetensors, got 9" in capsys.readouterr().err
    assert main(["predict", "d.csv", "d.csv"]) == 2
    assert "d.csv: expected a model that `kru fit` has written, got another file" in capsys.readouterr().err


def test_forecasts_with_exogenous_columns(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=63)
    values = np.concatenate([[0.0], x[1:] * 2 + 5])
    lines = [f"s,{t},{x[t]},{values[t] if t < 60 else ''}" for t in range(63)]
    # The times put the rows in order.
    Path("s.csv").write_text("case,time,x,sold\n" + "\n".join(lines[::-1]) + "\n")
    options = ["--as", "forecaster", "--target", "sold", "--exogenous", "x", "--horizon", "3"]
    short = ["--steps", "5", "--units", "8", "--quiet"]
    assert main(["fit", "s.csv", *options, *short, "-o", "m.safetensors"]) == 0
    capsys.readouterr()
    assert main(["predict", "m", "s.csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["case"], row["step"]) for row in rows] == [("s", "1"), ("s", "2"), ("s", "3")]
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], values[60:], atol=0.5)
    assert all(float(row["lower"]) <= float(row["prediction"]) <= float(row["upper"]) for row in rows)
    assert main(["evaluate", "m", "s.csv"]) == 0
    assert re.search(r"root mean square error [\d.]+ one step ahead", capsys.readouterr().out)
    assert main(["export", "m", "--to", "c99", "-o", "c"]) == 0
    assert "#define MODEL_INPUTS 1 " in Path("c/model.h").read_text()


def test_text_is_generated_repeatably(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("naïve café. " * 40, encoding="utf-8")
    for extra in ([], ["--bytes"]):
        assert (
            main(["fit", "t.txt", "--steps", "5", "--units", "8", "--quiet", *extra, "-o", "m.safetensors"])
            == 0
        )
        capsys.readouterr()
        sample = ["generate", "m", "--prompt", "caf", "--length", "30", "--top-k", "3", "--seed", "1"]
        assert main(sample) == 0
        text = capsys.readouterr().out
        assert text.startswith("caf")
        assert main(sample) == 0
        assert capsys.readouterr().out == text
        assert main(["evaluate", "m", "t.txt"]) == 0
        assert f"bits per {'byte' if extra else 'character'}" in capsys.readouterr().out


def wav_folder(folder: Path) -> list[str]:
    for index in range(6):
        name, speed = ("low", 0.1) if index % 2 else ("high", 0.6)
        samples = (8000 * np.sin(speed * np.arange(60 + index))).astype("<i2")
        with wave.open(str(folder / f"{name}_{index}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
    return [str(folder), "--label-pattern", "^([a-z]+)_", "--features", "raw"]


def wide_parquet(folder: Path) -> list[str]:
    pd = pytest.importorskip("pandas")
    values = np.random.default_rng(0).normal(size=(6, 5))
    frame = pd.DataFrame(values, columns=[f"t{index}" for index in range(5)]).assign(label=["p", "n"] * 3)
    frame.to_parquet(folder / "d.parquet")
    return [str(folder / "d.parquet"), "--target", "label"]


def npz_of_numbers(folder: Path) -> list[str]:
    X = np.random.default_rng(0).normal(size=(6, 2, 5))
    np.savez(folder / "d.npz", X=X, speed=X[:, 0].mean(1))
    return [str(folder / "d.npz"), "--target", "speed"]


@pytest.mark.parametrize("write", [wav_folder, wide_parquet, npz_of_numbers])
def test_other_forms_of_data(write, tmp_path, capsys) -> None:
    folder, model = tmp_path / "data", tmp_path / "m.safetensors"
    folder.mkdir()
    data = write(folder)
    short = ["--steps", "3", "--units", "8", "--quiet", "--test", data[0]]
    assert main(["fit", *data, *short, "-o", str(model)]) == 0, capsys.readouterr().err
    assert re.search(r"accuracy|R2", capsys.readouterr().out)
    assert main(["predict", str(model), data[0]]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 6
    estimator = load(model)
    cases = read_unlabelled(data[0], estimator.columns_, missing="error").X
    compiled = Compiled(c99(estimator, tmp_path / "c"))
    outputs = compiled_results(compiled, list(cases))
    if isinstance(estimator, KRUClassifier):
        assert [label_of(compiled, y) for y in outputs] == [row["prediction"] for row in rows]
    else:
        np.testing.assert_allclose(np.ravel(outputs), [float(row["prediction"]) for row in rows], atol=1e-5)


def test_what_is_not_installed_is_named(tmp_path) -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None; from kru.lab.cli import main;"
        "sys.exit(main(['fit', 'd.csv', '-o', 'm']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr == "kru fit: scikit-learn: not installed; run pip install 'kru[estimators]'\n"


def test_ctrl_c_saves_the_weights_so_far(tmp_path) -> None:
    np.savez(tmp_path / "d.npz", X=np.random.default_rng(0).normal(size=(20, 1, 30)), y=np.arange(20) % 2)
    command = [sys.executable, "-m", "kru", "fit", "d.npz", "-o", "m.safetensors", "--steps", "100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KRU_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    seen = b""
    while b"loss" not in seen:
        part = os.read(process.stderr.fileno(), 4096)
        assert part, seen
        seen += part
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert b"--warm-start continues where it stopped" in err
    assert b"KRUClassifier" in out
    model = load(tmp_path / "m.safetensors")
    assert set(model.predict(np.zeros((2, 1, 30)))) <= {0, 1}
    steps = str(int(re.search(rb"; ([\d,]+) steps in", out)[1].replace(b",", b"")) + 5)
    again = run(sys.executable, "-m", "kru", "fit", tmp_path / "d.npz", "-o", tmp_path / "m.safetensors",
                "--warm-start", "--steps", steps, "--quiet")  # fmt: skip
    assert f" {int(steps):,} steps in " in again
    assert not (tmp_path / "m.safetensors.training").exists()
