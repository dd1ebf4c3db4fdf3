"""Valid files of every kind that kru reads, small, made by its own commands where it writes them."""

import io
import os
import sqlite3
import wave
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io

from kru import reservoir
from kru.lab.cli import main
from kru.lab.tasks.audio import riff_bytes
from tests.lab.sweep.conftest import RECIPE, SPACE
from tests.lab.tasks.conftest import idx_bytes

from .command import quiet


def make(folder: Path) -> None:
    """All files, and what they need beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    rng = np.random.default_rng(0)
    _rolls(folder, rng)
    _recordings(folder, rng)
    _own_data(folder, rng)
    _run("train", "small.toml", "--quiet", "--out", "run", "--steps", "24", "--checkpoint-seconds", "0")
    _run("train", "small.toml", "--quiet", "--out", "half", "--steps", "8", "--checkpoint-seconds", "0")
    _run("train", "grown.toml", "--quiet", "--out", "grown", "--checkpoint-seconds", "0")
    for storage in ("s.db", "s.journal"):
        _run("sweep", "small.toml", "--space", "space.toml", "--trials", "5", "--steps", "4", "--storage", storage,
             "--out", "sweep")  # fmt: skip
    few = ("--steps", "3", "--units", "4", "--quiet")
    _run("fit", "long.csv", "--target", "label", "-o", "classifier.safetensors", *few)
    _run("fit", "wide.csv", "--target", "y", "--as", "regressor", "-o", "regressor.safetensors", *few)
    _run("fit", "series.csv", "--as", "forecaster", "-o", "forecaster.safetensors", "--horizon", "3", *few)
    _run("fit", "some.txt", "-o", "text.safetensors", *few)
    _run("fit", "sounds", "-o", "sounds.safetensors", *few)
    with sqlite3.connect("s.db") as database:  # one file, without a log beside it
        database.execute("PRAGMA journal_mode=DELETE")
    X, y = rng.normal(size=(12, 2, 6)), np.array(["up", "down"] * 6)
    small = {"units": 8, "random_state": 0, "washout": 0}
    reservoir.EchoStateClassifier(**small).fit(X, y).save("echo-classifier.safetensors")
    reservoir.EchoStateRegressor(**small, layers=2).fit(X, X[:, 0, 0]).save("echo-regressor.safetensors")
    series = np.sin(np.arange(80) / 3)
    reservoir.EchoStateForecaster(**small).fit(series).save("echo-forecaster.safetensors")


def _run(*arguments: str) -> None:
    with quiet() as (_, said):
        code = main(list(arguments))
    if code:
        raise RuntimeError(f"kru {' '.join(arguments)}: exit code {code}: {said.getvalue()}")


def _rolls(folder: Path, rng: np.random.Generator) -> None:
    cells = {}
    for name, count in (("traindata", 6), ("validdata", 2), ("testdata", 2)):
        cells[name] = np.empty((1, count), object)
        for index in range(count):
            cells[name][0, index] = (rng.random((6, 88)) < 0.05).astype(np.uint8)
    scipy.io.savemat("rolls.mat", cells)
    scipy.io.savemat("packed.mat", cells, do_compression=True)
    recipe = RECIPE.format(rolls=folder / "rolls.mat")
    Path("small.toml").write_text(recipe)
    growth = "factors = [2, 2, 2]\n[growth]\nmax_parameters = 64\npatience = 1\ngain = 0.5"
    Path("grown.toml").write_text(recipe.replace("factors = [2, 2, 2]", growth))
    Path("space.toml").write_text(SPACE)
    Path("images.gz").write_bytes(idx_bytes(rng.integers(0, 256, (5, 28, 28))))


def _recordings(folder: Path, rng: np.random.Generator) -> None:
    samples = rng.integers(-1000, 1000, 1600).astype(np.int16)
    riff, labels = riff_bytes(samples), b"0 300 h#\n300 800 iy\n800 1600 h#\n"
    header = (
        "NIST_1A\n   1024\nchannel_count -i 1\nsample_count -i 1600\nsample_rate -i 16000\nsample_n_bytes -i 2\n"
        "sample_byte_format -s2 01\nsample_coding -s3 pcm\nend_head\n"
    )
    sphere = header.encode().ljust(1024) + samples.astype("<i2").tobytes()
    Path("riff.wav").write_bytes(riff)
    Path("sphere.wav").write_bytes(sphere)
    Path("labels.phn").write_bytes(labels)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for speaker in ("dr1-fvmh0", "dr2-mabc0"):
            for sentence, sound in (("sx1", riff), ("sx2", sphere)):
                archive.writestr(f"timit/{speaker}/{sentence}.wav", sound)
                archive.writestr(f"timit/{speaker}/{sentence}.phn", labels)
    Path("corpus.zip").write_bytes(packed.getvalue())
    for label in ("a", "b"):
        (folder / "sounds" / label).mkdir(parents=True, exist_ok=True)
        for index, (width, channels) in enumerate([(2, 1), (2, 1), (3, 1)]):
            with wave.open(f"sounds/{label}/{index}.wav", "wb") as file:
                file.setnchannels(channels)
                file.setsampwidth(width)
                file.setframerate(4000)
                file.writeframes(rng.bytes(400 * width))
    for width, channels in ((1, 2), (4, 1)):
        with wave.open(f"plain{width}.wav", "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(width)
            file.setframerate(4000)
            file.writeframes(rng.bytes(400 * width))


def _own_data(folder: Path, rng: np.random.Generator) -> None:
    rows = [
        (f"c{c}", t, rng.normal(), t * c % 3, "up" if c % 2 else "down") for c in range(12) for t in range(6)
    ]
    long = pd.DataFrame(rows, columns=["case", "time", "x", "z", "label"])
    long.to_csv("long.csv", index=False)
    long.to_parquet("long.parquet")
    wide = pd.DataFrame(rng.normal(size=(12, 6)).round(3), columns=[f"t{k}" for k in range(6)]).assign(
        y=rng.normal(size=12)
    )
    wide.to_csv("wide.csv", index=False)
    times = pd.date_range("2020-01-01", periods=60)
    series = pd.DataFrame({"time": times, "value": np.sin(np.arange(60) / 3)})
    series.to_csv("series.csv", index=False)
    series.to_parquet("series.parquet")
    np.savez_compressed("cases.npz", X=rng.normal(size=(12, 2, 6)), y=np.array(["up", "down"] * 6))
    np.savez("more.npz", X=rng.normal(size=(12, 2, 6)).astype(np.float32), y=np.arange(12.0))
    body = "\n".join(f"1,2,{k}:4,5,?:{'up' if k % 2 else 'down'}" for k in range(12))
    Path("cases.ts").write_text(f"# remark\n@problemName a\n@classLabel true up down\n@data\n{body}\n")
    Path("targets.ts").write_text(
        "@targetLabel true\n@data\n" + "\n".join(f"1,2,{k}:{k}.5" for k in range(12)) + "\n"
    )
    Path("some.txt").write_text(
        "the quick brown fox jumps over the lazy dog, é and ü\n" * 40, encoding="utf-8"
    )
