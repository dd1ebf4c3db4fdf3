"""Exported models of sounds: samples go in, and the features are those of Python."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from kru import KRU
from kru.estimators import KRUClassifier, KRURegressor
from kru.export import Exportable, c99, javascript, onnx, program
from kru.export.source import network_from
from kru.export.torch_modules import Sequence, SoundMaps, Step
from kru.sound import SoundFeatures

from ..estimators.test_sounds import RATE, tones
from .compiled import Compiled, run, tool
from .test_own_data import javascript_results, label_of

FEATURES = {
    "mfcc": SoundFeatures.of(8000),
    "44100 Hz": SoundFeatures.of(44_100, hop=0.02, filters=40, coefficients=20, lifter=0),
    "log-mel": SoundFeatures.of(16_000, "log-mel", preemphasis=0.0, floor=1e-6),
    "no overlap": SoundFeatures.of(11_025, "log-mel", window=0.016, hop=0.016, filters=3),
    "short": SoundFeatures(1000, "mfcc", 4, 1, filters=2, coefficients=1),
}


def windows_of(features: SoundFeatures) -> np.ndarray:
    """Loud, soft, silent and single-toned windows."""
    rng = np.random.default_rng(0)
    noise = rng.uniform(-1, 1, size=(3, features.window)) * [[1], [1e-3], [0]]
    tone = 0.9 * np.sin(0.7 * np.arange(features.window))
    return np.concatenate([noise, tone[None], np.ones((1, features.window))]).astype(np.float32)


def module_of(features: SoundFeatures, channels: int = 1) -> Exportable:
    torch.manual_seed(0)
    return Exportable(nn.GRU(channels * features.size, 3), sound=features)


@pytest.mark.parametrize("name", list(FEATURES))
def test_features_in_every_language(name: str, tmp_path: Path) -> None:
    features = FEATURES[name]
    windows = windows_of(features)
    expected = features.of_windows(windows.astype(np.float64))
    model = module_of(features)

    def near(actual, tolerance: float) -> None:
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())

    near(SoundMaps(network_from(model).sound)(torch.from_numpy(windows)[:, None]).numpy(), 1e-4)
    c99(model, tmp_path / "c")
    numbers = ", ".join(f"{float(value).hex()}f" for value in windows.flatten())
    (tmp_path / "features.c").write_text(
        '#include "c/model.c"\n#include <stdio.h>\n'
        f"static const float heard[] = {{{numbers}}};\nstatic model_state state;\n"
        f"int main(void) {{ float y[{features.size}];"
        f" for (int w = 0; w < {len(windows)}; w++) {{"
        f" sound_features(&state, heard + w * {features.window}, y);"
        f' for (int i = 0; i < {features.size}; i++) printf("%.9g ", (double)y[i]); printf("\\n"); }} return 0; }}\n'
    )
    program_ = tmp_path / "features"
    run(tool("gcc"), "-std=c99", "-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all",
        tmp_path / "features.c", "-o", program_, "-lm")  # fmt: skip
    near([list(map(float, line.split())) for line in run(program_).splitlines()], 1e-4)
    [file] = javascript(model, tmp_path / "js").files
    source = file.read_text() + "\nexport { features };"
    (tmp_path / "open.mjs").write_text(source)
    script = (
        f"import {{ features }} from {json.dumps((tmp_path / 'open.mjs').as_uri())};"
        f"console.log(JSON.stringify({json.dumps(windows.tolist())}.map(features)));"
    )
    (tmp_path / "script.mjs").write_text(script)
    near(json.loads(run(tool("node"), tmp_path / "script.mjs")), 1e-5)


@pytest.mark.parametrize(
    ("channels", "settings"),
    [
        (1, {"features": "mfcc"}),
        (
            2,
            {
                "features": {"kind": "log-mel", "hop": 0.02, "filters": 10},
                "differences": False,
                "readout": "last",
            },
        ),
    ],
)
def test_samples_go_in_and_labels_come_out(channels: int, settings: dict, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    X, y = tones(8, 0, channels)
    model = KRUClassifier(units=8, sample_rate=RATE, steps=20, random_state=0, **settings).fit(X, y)
    X = [x.astype(np.float32) for x in tones(6, 1, channels)[0]]
    expected, labels = model.predict_proba(X), model.predict(X).tolist()

    def near(actual) -> None:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)

    with torch.no_grad():
        near([Sequence(network_from(model))(torch.from_numpy(x.T)[:, None])[0][0].numpy() for x in X])
    compiled = Compiled(c99(model, tmp_path / "c"))
    outputs = np.full((len(X), 2), np.nan, dtype=np.float32)
    window, hop = model.sound_.window, model.sound_.hop
    for x, out in zip(X, outputs, strict=True):
        compiled.reset()
        new = [compiled.call(torch.from_numpy(np.ascontiguousarray(sample)), out) for sample in x.T]
        assert np.flatnonzero(new).tolist() == list(range(window - 1, x.shape[1], hop))
    near(outputs)
    assert [label_of(compiled, out) for out in outputs] == labels
    [file] = javascript(model, tmp_path / "js").files
    # A single channel needs no array for each sample.
    found = javascript_results(file, [x[0].tolist() if channels == 1 else x.T.tolist() for x in X])
    near([result["outputs"] for result in found])
    assert [result["label"] for result in found] == labels
    assert "step: takes a window" in onnx(model, tmp_path / "o").notes[1]
    whole = runtime.InferenceSession(tmp_path / "o" / "model_sequence.onnx")
    near([whole.run(["output"], {"input": x.T[:, None]})[0][0] for x in X])
    one = runtime.InferenceSession(tmp_path / "o" / "model_step.onnx")
    shapes = {value.name: value.shape for value in one.get_inputs() if value.name != "input"}
    x, step = X[0], Step(network_from(model))
    states = {
        key: np.zeros([n if isinstance(n, int) else 1 for n in shape], np.float32)
        for key, shape in shapes.items()
    }
    reference = [torch.from_numpy(state) for state in states.values()]
    names = [value.name for value in one.get_outputs()]
    for start in range(0, x.shape[1] - window + 1, hop):
        part = np.ascontiguousarray(x[None, :, start : start + window].transpose(0, 2, 1))
        results = dict(zip(names, one.run(None, {"input": part, **states}), strict=True))
        states = {key: results[f"{key}_next"] for key in states}
        with torch.no_grad():
            output, *reference = step(torch.from_numpy(part), *reference)
        reference = reference[: len(states)]
    np.testing.assert_allclose(results["output"][0], expected[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(output[0], expected[0], rtol=0, atol=1e-5)


def test_programs_of_torch_read_samples(tmp_path: Path) -> None:
    features = SoundFeatures.of(8000, "log-mel", filters=4)
    X, _ = tones(4, 0)
    model = KRURegressor(units=2, sample_rate=RATE, features={"kind": "log-mel", "filters": 4}, steps=2)
    model.fit(X, np.arange(4.0))
    assert model.sound_ == features
    assert "at least 280" in program(model, tmp_path / "p").notes[0]
    loaded = torch.export.load(tmp_path / "p" / "model_sequence.pt2").module()
    outputs = [loaded(torch.tensor(x.T[:, None], dtype=torch.float32))[0][0, 0].item() for x in X]
    np.testing.assert_allclose(outputs, model.predict(X), rtol=1e-5, atol=1e-5)


def test_settings_that_do_not_fit() -> None:
    features = SoundFeatures.of(8000)
    with pytest.raises(
        ValueError, match="sound: expected a module that reads 13 features for each channel, got one"
    ):
        network_from(Exportable(nn.GRU(14, 3), sound=features))
    with pytest.raises(TypeError, match=r"sound: expected kru\.sound\.SoundFeatures, got str"):
        network_from(Exportable(nn.GRU(13, 3), sound="mfcc"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sound: expected none for a model of symbols"):
        network_from(Exportable(KRU(13, 4), symbols=True, sound=features))


def test_a_javascript_stream_has_no_result_before_the_first_window(tmp_path: Path) -> None:
    [file] = javascript(
        module_of(SoundFeatures.of(1000, "log-mel", hop=0.025, filters=8)), tmp_path / "js"
    ).files
    script = (
        f"import {{ step, run }} from {json.dumps(file.as_uri())};"
        "const all = Array.from({ length: 60 }, (_, i) => step(Math.sin(i)));"
        "console.log(all.findIndex(Boolean), new Set(all).size, run([0.5]).at(-1));"
        "try { step([1, 2]); } catch (error) { console.log(error.message); }"
    )
    printed = subprocess.run(
        [tool("node"), "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split("\n")[:2] == ["24 3 null", "x: expected 1 values, got 2"]
