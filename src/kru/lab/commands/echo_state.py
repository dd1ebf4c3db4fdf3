"""Echo state models in `kru fit --model echo-state`, `kru predict` and `kru evaluate`."""

import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

SETTINGS = (
    "units",
    "factors",
    "layers",
    "spectral_radius",
    "input_scaling",
    "leak",
    "bias_scaling",
    "ridge",
    "washout",
    "precision",
)
"""Options of `kru fit` that are settings of the estimator."""

OTHERS = (
    "data",
    "out",
    "target",
    "kind_of_model",
    "model",
    "case",
    "time",
    "channels",
    "exogenous",
    "label_pattern",
    "missing",
    "seed",
    "test",
    "quiet",
)
"""Options that mean the same as for trained networks."""

HORIZON = 10
"""Steps that are forecast if the command does not say how many."""

FORMAT = "kru echo state"
"""How the entry `format` of such a file begins; `kru.reservoir.storage` itself needs scikit-learn."""


def is_echo_state(estimator: Any) -> bool:
    return hasattr(estimator, "reservoir_")


def fit(options: Any, columns: Any) -> int:
    """`kru fit` with these options."""
    from kru import reservoir
    from kru.estimators.sources import guess_kind
    from kru.lab.commands.own_data import score_line

    for field in fields(options):
        given = getattr(options, field.name)
        if field.name not in (*SETTINGS, *OTHERS) and given != field.default:
            raise ValueError(
                f"{field.name.replace('_', '-')}: expected none for an echo state model, got {given}"
            )
    if options.missing == "mask":
        raise ValueError("missing: expected error for an echo state model, got mask")
    kind: str | None = options.kind_of_model
    if kind is None:
        kind, reason = guess_kind(options.data, columns)
        print(f"{kind}: {reason} (--as chooses another)", file=sys.stderr)
    classes = {
        "classifier": reservoir.EchoStateClassifier,
        "regressor": reservoir.EchoStateRegressor,
        "forecaster": reservoir.EchoStateForecaster,
    }
    if kind not in classes:
        raise ValueError(f"as: expected {', '.join(classes)} for an echo state model, got {kind}")
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) not in (None, ())}
    estimator = classes[kind](random_state=options.seed, **given)
    began = time.perf_counter()
    try:
        columns = _fit(estimator, options.data, columns, kind)
    except ValueError as error:
        raise ValueError(
            f"{options.data}: {error}" if str(error).startswith(("y:", "X:")) else error
        ) from error
    estimator.columns_ = columns
    estimator.save(options.out)
    weights = estimator.linear_.weight.numel() + estimator.linear_.bias.numel()
    print(
        f"{options.out}: {type(estimator).__name__}, {estimator.units} units, {weights:,} fitted weights, "
        f"ridge {estimator.strength_:.1g}; {time.perf_counter() - began:.2g} s"
    )
    if options.test is not None:
        print(score_line(estimator, options.test))
    return 0


def _fit(estimator: Any, path: Path, columns: Any, kind: str) -> Any:
    """Fit to a file; the columns that were read."""
    from kru.estimators.series_files import read_series_file
    from kru.estimators.sources import read_labelled

    if kind != "forecaster":
        data, columns = read_labelled(path, columns, missing="error", numbers=kind == "regressor")
        estimator.fit(data.X, data.y)
        return columns
    series = read_series_file(path, columns)
    if len(series.y) == 1:
        known = None if series.X is None else series.X[0][:, : len(series.y[0])]
        estimator.fit(series.y[0], known)
    else:
        if series.X is not None:
            raise ValueError("exogenous: expected one series for an echo state model, got several")
        estimator.fit(series.y)
        estimator.flat_ = True  # each of them is (time,)
    return replace(columns, target=series.target)


def forecasts(estimator: Any, path: Path | None, horizon: int | None) -> Iterator[list[list[Any]]]:
    """The header of `kru predict`, then rows for each series."""
    from kru.estimators.series_files import read_series_file

    steps = HORIZON if horizon is None else horizon
    yield [["case", "step", "prediction"]]
    if path is None:
        found = [("0", estimator.predict(steps))]
    else:
        series = read_series_file(path, estimator.columns_)
        inputs = [None] * len(series.y) if series.X is None else series.X
        found = [
            (name, estimator.predict(steps, y, None if X is None else X[:, : len(y) + steps]))
            for name, y, X in zip(series.names, series.y, inputs, strict=True)
        ]
    for name, values in found:
        yield [[name, step, value] for step, value in enumerate(values.tolist(), 1)]


def forecast_score(estimator: Any, path: Path) -> str:
    """Errors of free runs from every step of a file after the washout, in one line."""
    import numpy as np

    from kru.estimators.series_files import read_series_file

    series = read_series_file(path, estimator.columns_)
    inputs = [None] * len(series.y) if series.X is None else series.X
    errors = []
    for name, y, X in zip(series.names, series.y, inputs, strict=True):
        try:
            found, actual = estimator.backtest(y, None if X is None else X[:, : len(y)], horizon=HORIZON)
        except ValueError as error:
            raise ValueError(f"{path}: case {name}: {error}") from error
        errors.append(found - actual)
    rmse = np.sqrt((np.concatenate(errors) ** 2).mean((0, 1)))
    return (
        f"root mean square error {rmse[0]:.4g} one step ahead, {rmse[-1]:.4g} {len(rmse)} steps ahead "
        f"on {path} ({sum(map(len, errors)):,} forecasts)"
    )
