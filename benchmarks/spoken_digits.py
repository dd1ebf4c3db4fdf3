"""Spoken digits: models of at most 10,000 and 40,000 parameters, from recordings to C.

    .venv/bin/python benchmarks/spoken_digits.py --data-dir DIR --choose   # settings, on training recordings alone
    .venv/bin/python benchmarks/spoken_digits.py --data-dir DIR

Two splits of the Free Spoken Digit Dataset (`kru data fetch fsdd`): the official one, which tests with the recordings
0 to 4 of every speaker and digit, and by speaker, which tests with a speaker that the model never heard. --choose
compares settings by training on four speakers and testing on a fifth; recordings 0 to 4 and the sixth speaker have no
part in it. The exported C computes the features as well, and reads every test recording sample by sample. Every cell is
saved when it is finished, and skipped when the command is repeated.
"""

import argparse
import io
import time
import wave
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from cells import Cells
from numpy.typing import NDArray
from programs import program

from kru.estimators import KRUClassifier
from kru.lab.data import find
from kru.lab.data.archive import open_archive, read_member

COMMAND = ".venv/bin/python benchmarks/spoken_digits.py --data-dir DIR"
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
RATE = 8000
BUDGETS = (10_000, 40_000)
SEEDS = (0, 1, 2)


class Recording(NamedTuple):
    digit: int
    speaker: str
    index: int
    samples: NDArray[np.float64]
    """(1, n), from -1 to 1"""


def recordings(data_dir: Path | None) -> list[Recording]:
    with open_archive(find("fsdd/free-spoken-digits.zip", data_dir)) as archive:
        found = []
        for name in sorted(name for name in archive.namelist() if name.endswith(".wav")):
            with wave.open(io.BytesIO(read_member(archive, name))) as file:
                data = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
            digit, speaker, index = Path(name).stem.split("_")
            found.append(Recording(int(digit), speaker, int(index), data[None] / 32768))
    return found


def network(seed: int, parameters: int, **settings: Any) -> KRUClassifier:
    """A window of 32 ms every 16 ms: fewer steps than with the default, in training and on a device."""
    features = {"kind": "mfcc", "window": 0.032, "hop": 0.016}
    asked: dict[str, Any] = {
        "units": None,
        "max_parameters": parameters,
        "steps": 1000,
        "batch_size": 32,
        "augment": 3,
    }
    return KRUClassifier(features=features, sample_rate=RATE, random_state=seed, **(asked | settings))


def measured(model: KRUClassifier, train: list[Recording], test: list[Recording]) -> dict[str, Any]:
    begin = time.thread_time()
    model.fit([r.samples for r in train], [r.digit for r in train])
    seconds = time.thread_time() - begin
    predictions = model.predict([r.samples for r in test])
    right = predictions == [r.digit for r in test]
    return {
        "accuracy": float(right.mean()),
        "cases": len(test),
        "units": model.network_settings_.units,
        "parameters": model.n_parameters_,
        "train_seconds": round(seconds, 1),
        "predictions": predictions,
    }


def cell(data: list[Recording], split: str, parameters: int, seed: int) -> dict[str, Any]:
    test = [r for r in data if (r.index < 5 if split == "official" else r.speaker == split)]
    train = [r for r in data if (r.index >= 5 if split == "official" else r.speaker != split)]
    model = network(seed, parameters)
    row = measured(model, train, test)
    in_c = program(model, [r.samples for r in test], row.pop("predictions"))
    in_c["c_microseconds_a_second"] = round(in_c.pop("c_microseconds") * RATE)
    return {"split": split, "budget": parameters, "seed": seed} | row | in_c


CHOICES: dict[str, dict[str, Any]] = {
    "without variants": {"augment": 0},
    "three variants of each recording": {},
    "three variants, dropout 0.2": {"dropout": 0.2},
}


def choice_cell(data: list[Recording], choice: str) -> dict[str, Any]:
    train = [r for r in data if r.speaker in SPEAKERS[:4] and r.index >= 5]
    test = [r for r in data if r.speaker == SPEAKERS[4] and r.index >= 5]
    row = measured(network(0, BUDGETS[0], **CHOICES[choice]), train, test)
    del row["predictions"]
    return {"choice": choice} | row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data-dir", type=Path, help="the data directory; else KRU_DATA, else the user's cache"
    )
    parser.add_argument("--choose", action="store_true", help="compare settings on training recordings")
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=CHOICES)
    parser.add_argument(
        "--splits", nargs="+", default=["official", *SPEAKERS], choices=["official", *SPEAKERS]
    )
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = recordings(arguments.data_dir)
    if arguments.choose:
        cells = Cells(arguments.out / "spoken-digits-choices.json", f"{COMMAND} --choose", ("choice",))
        for choice in arguments.choices:
            cells.add(partial(choice_cell, data, choice), choice)
        return
    cells = Cells(arguments.out / "spoken-digits.json", COMMAND, ("split", "budget", "seed"))
    for seed in arguments.seeds:
        for budget in arguments.budgets:
            for split in arguments.splits:
                cells.add(partial(cell, data, split, budget, seed), split, budget, seed)


if __name__ == "__main__":
    main()
