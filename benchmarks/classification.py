"""KRUClassifier with its defaults on the sets inside aeon, against MiniRocket, 1-NN DTW, LSTM and GRU of its size.

    .venv/bin/python benchmarks/classification.py --folds   # settings, by cross-validation on training cases
    .venv/bin/python benchmarks/classification.py           # the test sets, and the table in docs/estimators.md

Needs the extras estimators and compare. Every cell of the tables is saved when it is finished, and skipped when the
command is repeated: results/benchmarks/classification.json, and classification-folds.json beside it. Seconds are CPU
time of one thread.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import aeon.datasets
import numpy as np
import torch
from aeon.classification.convolution_based import MiniRocketClassifier
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier
from aeon.datasets import load_from_ts_file
from cells import Cells
from numpy.typing import NDArray
from programs import program
from sklearn.model_selection import StratifiedKFold

from kru.estimators import KRUClassifier

SETS = (
    "BasicMotions",
    "JapaneseVowels",
    "GunPoint",
    "ItalyPowerDemand",
    "ArrowHead",
    "OSULeaf",
    "PickupGestureWiimoteZ",
)
SEEDS = (0, 1, 2, 3, 4)
FOLDS = 3
COMMAND = ".venv/bin/python benchmarks/classification.py"
Sequences = list[NDArray[np.float64]]
Data = tuple[Sequences, NDArray[Any]]

BASELINE: dict[str, Any] = {"learning_rate": 0.01}
"""What the LSTM and the GRU are given besides our defaults: the best of the rows of --folds."""
RATES = (0.01, 0.005, 0.0025)


def load(name: str, part: str) -> Data:
    folder = Path(aeon.datasets.__file__).parent / "data" / name
    values, labels = load_from_ts_file(str(folder / f"{name}_{part}.ts"))
    return [np.asarray(case, dtype=np.float64) for case in values], labels


def same_size(kind: str, X: Sequences, y: NDArray[Any]) -> int:
    """The units with which a baseline has about as many parameters as our default."""
    wanted = KRUClassifier(steps=1).fit(X, y).n_parameters_
    inputs, classes = 2 * len(X[0]), len(set(y))  # values and their changes
    gates = {"lstm": 4, "gru": 3}[kind]

    def parameters(units: int) -> int:
        return gates * units * (inputs + units + 1) + (units + 1) * classes

    return min(range(2, 256), key=lambda units: abs(parameters(units) - wanted))


def network(kind: str, seed: int, data: Data, **settings: Any) -> KRUClassifier:
    if kind != "kru-gru":
        settings = {"kind": kind, "units": same_size(kind, *data)} | BASELINE | settings
    return KRUClassifier(random_state=seed, **settings)


def padded(cases: Sequences, steps: int) -> NDArray[np.float64]:
    """MiniRocket reads cases of one length: zeros follow the shorter ones."""
    return np.stack([np.pad(case[:, :steps], ((0, 0), (0, max(0, steps - case.shape[1])))) for case in cases])


@dataclass(frozen=True)
class Outcome:
    predictions: NDArray[Any]
    train_seconds: float
    values: int
    """numbers that the fitted model holds"""
    model: Any = None


def run_network(kind: str, train: Data, cases: Sequences, seed: int) -> Outcome:
    model = network(kind, seed, train)
    begin = time.thread_time()
    model.fit(*train)
    seconds = time.thread_time() - begin
    return Outcome(model.predict(cases), seconds, model.n_parameters_, model)


def run_minirocket(train: Data, cases: Sequences, seed: int) -> Outcome:
    longest = max(case.shape[1] for case in train[0])
    model = MiniRocketClassifier(random_state=seed, n_jobs=1)
    begin = time.thread_time()
    model.fit(padded(train[0], longest), train[1])
    seconds = time.thread_time() - begin
    ridge = model.pipeline_[-1]
    values = ridge.coef_.size + ridge.intercept_.size + sum(np.size(a) for a in model.pipeline_[0].parameters)
    return Outcome(model.predict(padded(cases, longest)), seconds, int(values))


def run_dtw(train: Data, cases: Sequences, seed: int) -> Outcome:
    model = KNeighborsTimeSeriesClassifier(distance="dtw", n_jobs=1)
    begin = time.thread_time()
    model.fit(train[0], train[1])
    seconds = time.thread_time() - begin
    return Outcome(model.predict(cases), seconds, sum(case.size for case in train[0]))


CONTESTANTS: dict[str, Callable[[Data, Sequences, int], Outcome]] = {
    "kru": partial(run_network, "kru-gru"),
    "gru": partial(run_network, "gru"),
    "lstm": partial(run_network, "lstm"),
    "minirocket": run_minirocket,
    "dtw": run_dtw,
}


def cell(name: str, contestant: str, seed: int) -> dict[str, Any]:
    """One fit and its test figure; of networks also what the exported C is like."""
    train, (cases, labels) = load(name, "TRAIN"), load(name, "TEST")
    if contestant in ("minirocket", "dtw"):  # numba compiles at the first call
        few = np.concatenate([np.flatnonzero(train[1] == label)[:2] for label in np.unique(train[1])])
        CONTESTANTS[contestant](([train[0][i] for i in few], train[1][few]), cases[:2], seed)
    begin = time.thread_time()
    outcome = CONTESTANTS[contestant](train, cases, seed)
    found = {
        "set": name,
        "contestant": contestant,
        "seed": seed,
        "accuracy": float((outcome.predictions == labels).mean()),
        "train_seconds": round(outcome.train_seconds, 3),
        "predict_seconds": round(time.thread_time() - begin - outcome.train_seconds, 3),
        "values": outcome.values,
    }
    if outcome.model is not None:
        found["units"] = outcome.model.network_settings_.units
        found |= program(outcome.model, cases, outcome.predictions)
    return found


CHOICES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "64 units": {"units": 64},
    "learning rate 0.005": {"learning_rate": 0.005},
    "1,200 steps": {"steps": 1200},
    "averaged weights": {"average": 0.98},
    "dropout 0.2": {"dropout": 0.2},
    "two layers": {"layers": 2},
    "bidirectional": {"bidirectional": True},
    "KRU-LSTM": {"kind": "kru-lstm"},
    **{
        f"{kind}, learning rate {rate}": {"kind": kind, "learning_rate": rate}
        for kind in ("gru", "lstm")
        for rate in RATES
    },
}


def fold_cell(name: str, choice: str, fold: int) -> dict[str, Any]:
    """The accuracy on one fold of the training cases."""
    cases, labels = load(name, "TRAIN")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(labels)), labels)
    inside, outside = list(folds)[fold]
    train = [cases[i] for i in inside], labels[inside]
    settings = dict(CHOICES[choice])
    kind = settings.pop("kind", "kru-gru")
    if kind == "kru-lstm":
        kind, settings["kind"] = "kru-gru", kind
    begin = time.thread_time()
    model = network(kind, fold, train, **settings).fit(*train)
    found = model.predict([cases[i] for i in outside]) == labels[outside]
    return {
        "set": name,
        "choice": choice,
        "fold": fold,
        "accuracy": float(found.mean()),
        "parameters": model.n_parameters_,
        "seconds": round(time.thread_time() - begin, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", action="store_true", help="cross-validation on training cases alone")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=CHOICES)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--page", type=Path, default=Path("docs/estimators.md"), help="page with the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.folds:
        cells = Cells(
            arguments.out / "classification-folds.json", f"{COMMAND} --folds", ("set", "choice", "fold")
        )
        for choice in arguments.choices:
            for name in arguments.sets:
                for fold in range(FOLDS):
                    cells.add(partial(fold_cell, name, choice, fold), name, choice, fold)
            found = [row["accuracy"] for row in cells.rows if row["choice"] == choice]
            print(f"{choice}: {fmean(found):.4f} over {len(found)} folds", flush=True)
    else:
        cells = Cells(arguments.out / "classification.json", COMMAND, ("set", "contestant", "seed"))
        for seed in arguments.seeds:
            for name in arguments.sets:
                for contestant in arguments.contestants:
                    if contestant != "dtw" or seed == arguments.seeds[0]:  # nothing random in it
                        cells.add(partial(cell, name, contestant, seed), name, contestant, seed)


if __name__ == "__main__":
    main()
