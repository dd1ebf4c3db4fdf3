"""`kru predict MODEL DATA`."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from kru.lab.cli import parse
from kru.lab.commands import echo_state
from kru.lab.commands.own_data import LEVEL, load_estimator

BLOCK = 256
"""Cases whose predictions are written at once."""

Row = list[Any]


@dataclass(frozen=True)
class Options:
    """Predictions of a model that `kru fit` wrote, one line of CSV for each case."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """file of the fitted model"""
    data: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """file or folder to predict; a forecaster continues the series of its fit without it"""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """CSV file to write; standard output by default"""
    proba: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """classifier: the probability of each class as well"""
    horizon: int | None = None
    """forecaster by echo states: steps to forecast; 10 by default"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "predict", arguments)
    from kru.training.files import write_atomically

    parts = _lines(load_estimator(options.model), options)
    if options.out is not None:
        write_atomically(options.out, "".join(parts).encode())
        return 0
    for part in parts:
        sys.stdout.write(part)
        sys.stdout.flush()
    return 0


def _lines(estimator: Any, options: Options) -> Iterator[str]:
    """The file, a few lines at a time."""
    from kru.estimators import KRUForecaster, KRULanguageModel
    from kru.reservoir import EchoStateForecaster

    if isinstance(estimator, KRULanguageModel):
        raise ValueError(
            f"{options.model}: expected a model of sequences or series, got one of text; `kru generate` writes text, "
            "`kru evaluate` measures it"
        )
    free_run = isinstance(estimator, EchoStateForecaster)
    if options.horizon is not None and not free_run:
        raise ValueError(
            f"horizon: expected an EchoStateForecaster, got {type(estimator).__name__}, whose fit decides"
        )
    forecasts = free_run or isinstance(estimator, KRUForecaster)
    if options.data is None and not forecasts:
        raise ValueError("data: expected a file to predict, got none")
    if options.proba and not hasattr(estimator, "predict_proba"):
        raise ValueError(f"proba: expected a classifier, got {type(estimator).__name__}")
    read = _forecasts if forecasts else _predictions
    for rows in read(estimator, options):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        yield text.getvalue()


def _predictions(estimator: Any, options: Options) -> Iterator[list[Row]]:
    import numpy as np

    from kru.estimators.sources import blocks, expect_sounds, read_unlabelled

    assert options.data is not None
    missing, sound = getattr(estimator, "missing", "error"), getattr(estimator, "sound_", None)
    data = read_unlabelled(options.data, estimator.columns_, missing=missing)
    expect_sounds(options.data, data, sound)
    header: Row | None = None
    for names, cases in blocks(data, BLOCK):
        try:
            predicted = np.asarray(estimator.predict(cases))
            extra = estimator.predict_proba(cases) if options.proba else np.empty((len(names), 0))
        except ValueError as error:
            raise ValueError(f"{options.data}: {str(error).removeprefix('X: ')}") from error
        table = predicted.reshape(len(predicted), -1).tolist()
        if header is None:
            header = ["case", "prediction"]
            if predicted.ndim > 1:
                header = ["case", *(f"prediction_{index}" for index in range(predicted.shape[1]))]
            yield [[*header, *(estimator.classes_.tolist() if options.proba else [])]]
        yield [
            [name, *row, *probabilities]
            for name, row, probabilities in zip(names, table, extra.tolist(), strict=True)
        ]


def _forecasts(estimator: Any, options: Options) -> Iterator[list[Row]]:
    from kru.estimators.series_files import read_series_file

    if echo_state.is_echo_state(estimator):
        try:
            yield from echo_state.forecasts(estimator, options.data, options.horizon)
        except ValueError as error:
            raise ValueError(f"{options.data or options.model}: {error}") from error
        return
    y, known, names = None, None, [str(index) for index in range(len(estimator.history_))]
    if options.data is not None:
        series = read_series_file(options.data, estimator.columns_)
        y, names = series.y, series.names
        if series.X is not None:
            known = [x[:, : len(values) + estimator.horizon_] for x, values in zip(series.X, y, strict=True)]
    try:
        values = estimator.predict(y, known)
        lower, upper = estimator.predict_interval(y, known, LEVEL)
    except ValueError as error:
        raise ValueError(f"{options.data or options.model}: {error}") from error
    yield [["case", "step", "prediction", "lower", "upper"]]
    for name, *rows in zip(
        names, *(part.reshape(len(names), -1).tolist() for part in (values, lower, upper)), strict=True
    ):
        yield [[name, step, *row] for step, row in enumerate(zip(*rows, strict=True), 1)]
