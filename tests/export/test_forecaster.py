"""Exported forecasters: the values of a series go in, what `predict` and `predict_interval` say comes out."""

import ctypes
import json
import re
from pathlib import Path

import numpy as np
import pytest

from kru.estimators import KRUForecaster
from kru.export import c99, javascript, onnx
from kru.lab.cli import main

from .compiled import WARNINGS, run, tool

pytestmark = pytest.mark.usefixtures("one_thread")
RNG = np.random.default_rng(0)
TIME = np.arange(150)
CYCLE = 50 + 10 * np.sin(TIME / 4) + RNG.normal(size=150) * (2 + np.sin(TIME / 4))
TREND = 300 + 2.0 * TIME + RNG.normal(size=150)
OUTSIDE = RNG.normal(size=(2, 156))
DRIVEN = 3 * OUTSIDE[0, :150] - OUTSIDE[1, :150] + 0.1 * RNG.normal(size=150)


class Program:
    """A forecaster in C."""

    def __init__(self, folder: Path, compiler: str = "gcc") -> None:
        sources = sorted(folder.glob("*.c"))
        library = folder / "model.so"
        run(
            tool(compiler),
            *WARNINGS,
            "-O2",
            "-fPIC",
            "-shared",
            f"-I{folder}",
            *sources,
            "-o",
            library,
            "-lm",
        )
        self.library = ctypes.CDLL(str(library))
        self.text = (folder / "model.h").read_text()
        self.horizon = int(re.search(r"_HORIZON (\d+)", self.text)[1])
        bytes_ = int(re.search(r"State: (\d+) bytes", self.text)[1])
        self.state = np.full(bytes_ // 4, np.nan, dtype=np.float32)

    def forecast(self, y: np.ndarray, x: np.ndarray | None = None, series: int | None = None) -> np.ndarray:
        """The forecast, lower and upper bounds, (3, horizon), after the values of a series."""
        state = ctypes.c_void_p(self.state.ctypes.data)
        floats = ctypes.POINTER(ctypes.c_float)
        exogenous = None if x is None else np.ascontiguousarray(x.T, dtype=np.float32)

        def row(start: int) -> list:
            return [] if exogenous is None else [exogenous[start:].ctypes.data_as(floats)]

        self.library.model_reset(state, *([] if series is None else [series]))
        for time, value in enumerate(y):
            self.library.model_step(state, ctypes.c_float(value), *row(time))
        out = np.full((3, self.horizon), np.nan, dtype=np.float32)
        ahead = [part.ctypes.data_as(floats) for part in out]
        self.code = self.library.model_forecast(state, *row(len(y)), *ahead)
        return out


def javascript_forecast(folder: Path, y: np.ndarray, x: np.ndarray | None, series: int) -> list:
    values = json.dumps(y.tolist())
    known = json.dumps(None if x is None else x.T.tolist())
    script = (
        f"import {{ create }} from {json.dumps((folder / 'model.mjs').as_uri())};"
        f"const y = {values}, x = {known}, model = create({series});"
        "y.forEach((value, t) => x ? model.step(value, x[t]) : model.step(value));"
        "const said = x ? model.forecast(x.slice(y.length)) : model.forecast();"
        "console.log(JSON.stringify([said.forecast, said.lower, said.upper]));"
    )
    return json.loads(run(tool("node"), "--input-type=module", "-e", script))


CASES = {
    "recursive": ({}, CYCLE, None),
    "direct": ({"strategy": "direct"}, CYCLE, None),
    "relative": ({"relative": True, "interval": "gaussian"}, TREND, None),
    "relative, direct": ({"relative": True, "strategy": "direct"}, TREND, None),
    "gaussian intervals": ({"interval": "gaussian", "relative": False}, CYCLE, None),
    "no linear part": ({"linear": False, "kind": "kru-lstm"}, CYCLE, None),
    "exogenous": ({"relative": False}, DRIVEN, OUTSIDE),
    "exogenous, direct": ({"strategy": "direct"}, DRIVEN, OUTSIDE),
    "exogenous, relative": ({"relative": True}, DRIVEN, OUTSIDE),
    "several series": ({}, [CYCLE, TREND, CYCLE[:80] / 7], None),
}


@pytest.mark.parametrize("name", list(CASES))
def test_programs_agree_with_predict(name: str, tmp_path: Path) -> None:
    settings, y, x = CASES[name]
    several = isinstance(y, list)
    fitted = None if x is None else x[:, : len(y)]
    model = KRUForecaster(6, context=9, units=8, steps=25, random_state=0, **settings).fit(y, fitted)
    if name != "no linear part":
        model.blend_ = 0.7  # with a part of the network, whatever was chosen
    c99(model, tmp_path / "c")
    javascript(model, tmp_path / "js")
    program = Program(tmp_path / "c")
    expected = np.stack([model.predict(y, x), *model.predict_interval(y, x)])
    for index, values in enumerate(y if several else [y]):
        wanted = expected[:, index] if several else expected
        found = program.forecast(values, x, index if several else None)
        assert program.code == 0
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-4 * model.levels_[index][1])
        in_javascript = javascript_forecast(tmp_path / "js", values, x, index)
        np.testing.assert_allclose(in_javascript, wanted, rtol=1e-5, atol=1e-5 * model.levels_[index][1])
    assert np.isnan(program.forecast((y[0] if several else y)[:8], x, 0 if several else None)).all()
    assert program.code == 1


def test_without_a_network_and_with_another_level(tmp_path: Path) -> None:
    model = KRUForecaster(3, units=8, steps=5, context=5, random_state=0).fit(CYCLE)
    model.blend_ = 0.0
    files = c99(model.forecast_program(level=0.5), tmp_path / "c").files
    assert [file.name for file in files] == ["model.h", "model.c"]
    javascript(model.forecast_program(level=0.5), tmp_path / "js")
    wanted = np.stack([model.predict(), *model.predict_interval(level=0.5)])
    np.testing.assert_allclose(Program(tmp_path / "c").forecast(CYCLE), wanted, rtol=1e-5)
    np.testing.assert_allclose(javascript_forecast(tmp_path / "js", CYCLE, None, 0), wanted, rtol=1e-6)


def test_the_command_and_what_it_refuses(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    model = KRUForecaster(3, units=8, steps=5, random_state=0).fit(CYCLE)
    model.save("m.safetensors")
    assert main(["export", "m", "--to", "c99", "--int8", "-o", "c"]) == 0
    assert "RAM" in capsys.readouterr().out
    assert main(["export", "m", "--to", "js", "-o", "js"]) == 0
    capsys.readouterr()
    assert main(["export", "m", "--to", "onnx", "-o", "o"]) == 2
    assert "forecasters go to c99 and js" in capsys.readouterr().err
    with pytest.raises(TypeError, match="onnx: expected a classifier"):
        onnx(model, tmp_path / "o")
    with pytest.raises(ValueError, match="labels: expected none for a forecaster"):
        c99(model, tmp_path / "x", labels=["a"])
    with pytest.raises(ValueError, match="level: expected above 0 and below 1, got 1"):
        model.forecast_program(level=1)
