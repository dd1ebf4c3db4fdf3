"""`kru fit DATA -o MODEL`."""

import shutil
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from kru.lab.cli import parse
from kru.lab.commands.echo_state import SETTINGS
from kru.lab.commands.echo_state import fit as fit_echo_state
from kru.lab.commands.own_data import estimator_path, load_estimator, read_language_text, score_line

NETWORK = ("kind", "units", "factors", "max_parameters", "layers", "bidirectional", "readout", "dropout")
"""Options that decide the shapes of the weights: they cannot change where training continues from a file."""
TRAINING = ("steps", "epochs", "batch_size", "learning_rate", "validation_fraction", "patience", "augment")

DESCRIPTION = """Fit a model to data of your own: kru fit DATA --target COLUMN -o model.safetensors

DATA is a table in long form (CSV or Parquet: columns case, time, channels, target) or with one row for each case, a
.npz file with arrays X and y, a .ts file of aeon or sktime, a folder of WAV files, or a text. --as chooses between
classification, regression, forecasting and text; without it the data decides. Ctrl-C ends the training and saves the
weights so far. Options left out have the defaults of kru.estimators."""


@dataclass(frozen=True)
class Options:
    """What `kru fit` takes."""

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """file or folder to learn from"""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="MODEL")]
    """file of the fitted model, such as model.safetensors; one that exists is replaced"""
    target: str | None = None
    """column to predict, or array of a .npz file (y by default)"""
    kind_of_model: Annotated[
        Literal["classifier", "regressor", "forecaster", "text"] | None, tyro.conf.arg(name="as")
    ] = None
    """kind of model; by default the data tells"""
    model: Literal["kru", "echo-state"] = "kru"
    """trained network, or reservoir whose linear read-out alone is fitted, in closed form"""
    case: str | None = None
    """column with the name of the case; case by default"""
    time: str | None = None
    """column with the time; time by default"""
    channels: tuple[str, ...] = ()
    """columns to read; all others by default"""
    exogenous: tuple[str, ...] = ()
    """forecaster: columns that are known of the future too"""
    label_pattern: str | None = None
    """WAV files: regular expression whose group finds the label in the name of a file; by default the label is the
    name of the folder"""
    features: Literal["mfcc", "log-mel", "raw"] | None = None
    """WAV files: what the model reads of the samples; mfcc by default, raw for the samples themselves"""
    augment: int | None = None
    """WAV files: variants of each recording to train on besides, with other speed, level, tone, pauses and noise"""
    missing: Literal["error", "mask"] | None = None
    """missing values: an error, or read as such"""
    horizon: int | None = None
    """forecaster: steps to forecast"""
    bytes: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """text: model the bytes of the file instead of its characters"""
    kind: str | None = None
    """recurrent layer: kru-gru, kru-lstm, kru, or a baseline such as gru or lstm"""
    units: int | None = None
    """number of units"""
    factors: tuple[int, ...] = ()
    """sizes of the Kronecker factors, whose product is the number of units"""
    max_parameters: int | None = None
    """upper limit of all parameters; without --units the model gets as many units as fit"""
    layers: int | None = None
    """recurrent layers on top of each other"""
    bidirectional: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """read sequences backwards too; such a model cannot be exported as C or JavaScript"""
    readout: Literal["mean", "last"] | None = None
    """what the prediction is read from: the mean of the states, or the last one"""
    dropout: float | None = None
    """probability of dropout before the read-out"""
    spectral_radius: float | None = None
    """echo-state: spectral radius of the recurrent matrix"""
    input_scaling: float | None = None
    """echo-state: largest input weight"""
    leak: float | None = None
    """echo-state: leak rate in (0, 1]; small values make slow units"""
    bias_scaling: float | None = None
    """echo-state: largest bias"""
    ridge: float | None = None
    """echo-state: strength of the read-out's regularisation; by default chosen by cross-validation"""
    washout: int | None = None
    """echo-state: first steps that the read-out does not learn from"""
    precision: Literal["float64", "float32"] | None = None
    """echo-state: precision of the states; float32 for models to be exported"""
    steps: int | None = None
    """budget in steps"""
    epochs: int | None = None
    """budget in epochs"""
    batch_size: int | None = None
    """sequences in a step"""
    learning_rate: float | None = None
    """initial learning rate"""
    validation_fraction: float | None = None
    """part of the data that is held out to choose the best weights"""
    patience: int | None = None
    """validation rounds to wait for an improvement"""
    seed: Annotated[int | None, tyro.conf.arg(aliases=["--random-state"])] = None
    """random seed; 0 by default"""
    test: Annotated[Path | None, tyro.conf.arg(metavar="DATA")] = None
    """data to measure the model on at the end"""
    warm_start: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """continue a training that was interrupted, exactly, or one that was complete from the weights in MODEL"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """no progress bar"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "fit", arguments, description=DESCRIPTION)
    from kru.estimators.columns import Columns
    from kru.estimators.sources import guess_kind
    from kru.training.files import expect_folder

    expect_folder(options.out.parent)
    if options.out.is_dir():
        raise ValueError(f"{options.out}: expected the name of a file, got a folder")
    if options.test is not None and not options.test.exists():
        raise ValueError(f"{options.test}: expected a file or a folder, got nothing there")
    columns = Columns(
        options.target,
        options.case,
        options.time,
        options.channels,
        options.exogenous,
        options.label_pattern,
    )
    if options.model == "echo-state":
        return fit_echo_state(options, columns)
    kind: str | None = options.kind_of_model
    if options.warm_start:
        estimator = _continued(options)
        columns = estimator.columns_
    else:
        if kind is None:
            kind, reason = guess_kind(options.data, columns)
            print(f"{kind}: {reason} (--as chooses another)", file=sys.stderr)
        estimator = _new(kind, options)
    folder = training_folder(options.out)
    estimator.set_params(folder=folder)
    if not options.warm_start:
        shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _fit(estimator, options, columns)
    seconds = time.perf_counter() - began
    interrupted = False
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            interrupted |= str(warning.message).startswith("fit: interrupted")
            print(f"kru fit: {' '.join(str(warning.message).split())}", file=sys.stderr)
    estimator.set_params(verbose=0, warm_start=False)
    estimator.save(options.out)
    if not interrupted:
        shutil.rmtree(folder, ignore_errors=True)
    settings = estimator.network_settings_
    print(
        f"{options.out}: {type(estimator).__name__}, {settings.units} units of {settings.kind}, "
        f"{estimator.n_parameters_:,} parameters; {estimator.n_steps_:,} steps in {seconds:,.0f} s"
    )
    if interrupted:
        print("kru fit: interrupted; --warm-start continues where it stopped", file=sys.stderr)
        return 130
    if options.test is not None:
        print(score_line(estimator, options.test))
    return 0


def training_folder(model: Path) -> Path:
    """Where the checkpoints of a fit are until the model is complete."""
    return model.with_name(f"{model.name}.training")


def _new(kind: str, options: Options) -> Any:
    """An estimator with the settings that were given."""
    from kru import estimators

    classes = {
        "classifier": estimators.KRUClassifier,
        "regressor": estimators.KRURegressor,
        "forecaster": estimators.KRUForecaster,
        "text": estimators.KRULanguageModel,
    }
    given = _given(options, (*NETWORK, *TRAINING, "missing", "horizon", *SETTINGS[3:]))
    if options.max_parameters is not None and options.units is None:
        given["units"] = None
    if options.bytes:
        given["symbols"] = "bytes"
        if kind != "text":
            raise ValueError(f"bytes: expected --as text, got --as {kind}")
    made = classes[kind](random_state=options.seed or 0, verbose=int(not options.quiet))
    _set(made, given, kind)
    return made


def _continued(options: Options) -> Any:
    """The estimator of an interrupted training, or the one in the file MODEL, with the options that were given."""
    from kru.estimators.fitting import interrupted_estimator

    estimator = interrupted_estimator(training_folder(options.out))
    if estimator is None:
        if estimator_path(options.out) is None:
            raise ValueError(
                f"warm-start: expected a fitted model to continue from, got none at {options.out}"
            )
        estimator = load_estimator(options.out)
        if type(estimator).__name__ == "KRUForecaster":
            raise ValueError(
                f"warm-start: expected a forecaster whose training was interrupted, got a complete one, {options.out}"
            )
    name = type(estimator).__name__
    known = estimator.get_params()
    for option, value in _given(options, (*NETWORK, "missing", "features")).items():
        before = known.get(option)
        if option == "features" and before is None:
            before = "raw"
        if value != (tuple(before) if isinstance(before, list) else before):
            raise ValueError(
                f"{option.replace('_', '-')}: expected {before} as in {options.out}, got {value}; leave out "
                "--warm-start to start anew"
            )
    _set(estimator, _given(options, TRAINING), name)
    estimator.set_params(warm_start=True, verbose=int(not options.quiet))
    if options.seed is not None:
        estimator.set_params(random_state=options.seed)
    return estimator


def _given(options: Options, names: Sequence[str]) -> dict[str, Any]:
    """The options that are not at their defaults, which leave things to the estimator."""
    values = {name: getattr(options, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if value is not None and value != () and value is not False
    }


def _set(estimator: Any, given: dict[str, Any], kind: str) -> None:
    for name in given:
        if name not in estimator.get_params():
            raise ValueError(f"{name.replace('_', '-')}: expected none for a {kind}, got {given[name]}")
    estimator.set_params(**given)


def _fit(estimator: Any, options: Options, columns: Any) -> None:
    from dataclasses import replace

    from kru.estimators import KRUForecaster, KRULanguageModel, KRURegressor
    from kru.estimators.series_files import read_series_file
    from kru.estimators.sources import read_labelled

    path = options.data
    estimator.columns_ = columns
    if isinstance(estimator, KRULanguageModel):
        estimator.fit(read_language_text(estimator, path))
    elif isinstance(estimator, KRUForecaster):
        series = read_series_file(path, columns)
        estimator.columns_ = replace(columns, target=series.target)
        known = None
        if series.X is not None:
            known = [x[:, : len(y)] for x, y in zip(series.X, series.y, strict=True)]
        estimator.fit(series.y, known)
    else:
        numbers = isinstance(estimator, KRURegressor)
        data, estimator.columns_ = read_labelled(path, columns, missing=estimator.missing, numbers=numbers)
        _choose_features(estimator, options, data)
        estimator.fit(data.X, data.y)


def _choose_features(estimator: Any, options: Options, data: Any) -> None:
    """What a model of sounds reads: the features that were asked for, or those of the model that training continues."""
    from kru.estimators.sounds import sound_features
    from kru.estimators.sources import expect_sounds

    if not options.warm_start:
        kind = options.features or ("raw" if data.rate is None else "mfcc")
        if data.rate is None and options.features not in (None, "raw"):
            raise ValueError(f"features: expected a folder of WAV files for {kind}, got {options.data}")
        if kind != "raw":
            estimator.set_params(features=kind, sample_rate=data.rate)
    sound = sound_features(estimator.features, estimator.sample_rate)
    expect_sounds(options.data, data, sound)
    if sound is not None and options.features is None:
        print(
            f"features: {sound.kind}, {sound.size} values every {1000 * sound.hop / sound.rate:.3g} ms "
            "(--features chooses others)",
            file=sys.stderr,
        )
