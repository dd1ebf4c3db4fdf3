"""What the commands for data of one's own share: finding an estimator's file, and scores."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from kru.lab.commands import echo_state

KEY = "kru.estimator"
"""The entry of a file's metadata by which an estimator is known; `kru.estimators` itself needs scikit-learn."""

LEVEL = 0.9
"""The probability of prediction intervals."""


def estimator_path(name: Path) -> Path | None:
    """The file that a path, perhaps without its ending, stands for if it holds an estimator, else None."""
    for path in (name, name.with_name(name.name + ".safetensors")):
        if path.is_file():
            try:
                with safe_open(path, "np") as file:
                    metadata = file.metadata() or {}
                    return path if KEY in metadata or _of_echo_state(metadata) else None
            except SafetensorError:
                return None
    return None


def load_estimator(name: Path) -> Any:
    """The estimator in a file.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    path = estimator_path(name)
    if path is None:
        what = "another file" if name.exists() else "no such file"
        raise ValueError(f"{name}: expected a model that `kru fit` has written, got {what}")
    with safe_open(path, "np") as file:
        if _of_echo_state(file.metadata() or {}):
            from kru.reservoir.echo_state import EchoState

            return EchoState.load(str(path))
    from kru.estimators import load

    return load(path)


def _of_echo_state(metadata: dict[str, str]) -> bool:
    return metadata.get("format", "").startswith(echo_state.FORMAT)


def read_language_text(estimator: Any, path: Path) -> str | bytes:
    """A text as a language model takes it."""
    from kru.estimators.files import read_text

    if estimator.symbols == "bytes":
        return path.read_bytes()
    try:
        return read_text(path)
    except ValueError as error:
        raise ValueError(str(error).replace('symbols="bytes"', "--bytes")) from error


def score_line(estimator: Any, path: Path) -> str:
    """How well an estimator does on a file, in one line."""
    import numpy as np

    from kru.estimators import KRUClassifier, KRUForecaster, KRULanguageModel, backtest
    from kru.estimators.series_files import read_series_file
    from kru.estimators.sources import expect_sounds, read_labelled
    from kru.reservoir import EchoStateClassifier, EchoStateForecaster

    if isinstance(estimator, KRULanguageModel):
        text = read_language_text(estimator, path)
        unit = "byte" if estimator.symbols == "bytes" else "character"
        return f"{estimator.bits_per_character(text):.4g} bits per {unit} on {path} ({len(text):,} {unit}s)"
    if isinstance(estimator, KRUForecaster):
        series = read_series_file(path, estimator.columns_)
        errors, covered = [], []
        for index, (name, y) in enumerate(zip(series.names, series.y, strict=True)):
            if len(y) < estimator.context_ + estimator.horizon_:
                raise ValueError(
                    f"{path}: case {name}: expected at least {estimator.context_ + estimator.horizon_} values, the "
                    f"context and the horizon, got {len(y)}"
                )
            x = None if series.X is None else series.X[index][:, : len(y)]
            result = backtest(estimator, y, x, start=estimator.context_, level=LEVEL)
            errors.append(result.forecasts - result.actual)
            covered.append((result.lower <= result.actual) & (result.actual <= result.upper))
        rmse = np.sqrt((np.concatenate(errors) ** 2).mean(0))
        ahead = f"{rmse[0]:.4g} one step ahead"
        if len(rmse) > 1:
            ahead += f", {rmse[-1]:.4g} {len(rmse)} steps ahead"
        inside = np.concatenate(covered).mean()
        return (
            f"root mean square error {ahead}; {inside:.1%} within the {LEVEL:.0%} interval "
            f"on {path} ({sum(map(len, errors)):,} forecasts)"
        )
    if isinstance(estimator, EchoStateForecaster):
        return echo_state.forecast_score(estimator, path)
    classifies = isinstance(estimator, KRUClassifier | EchoStateClassifier)
    missing = getattr(estimator, "missing", "error")
    data, _ = read_labelled(path, estimator.columns_, missing=missing, numbers=not classifies)
    expect_sounds(path, data, getattr(estimator, "sound_", None))
    if classifies:
        labels, said = np.asarray(data.y), np.asarray(estimator.predict(data.X))
        if not (labels.dtype.kind in "iuf" and said.dtype.kind in "iuf"):
            labels, said = labels.astype(str), said.astype(str)
        right = labels == said
        return f"accuracy {right.mean():.4g} on {path} ({right.sum():,} of {len(right):,} cases)"
    error = estimator.predict(data.X) - data.y
    return (
        f"R2 {estimator.score(data.X, data.y):.4g}, root mean square error {np.sqrt((error**2).mean()):.4g} "
        f"on {path} ({len(error):,} cases)"
    )
