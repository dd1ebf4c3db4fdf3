"""Errors at equal N and at equal time: a search for each contestant, problem and N, then five seeds on test data.

Every measurement is a cell that is stored at once, so that a run that was stopped continues where it was.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from reservoir_contestants import CONTESTANTS, Settings, draw_settings
from reservoir_problems import NAMES, problem

SEEDS = (1, 2, 3, 4, 5)
STRENGTHS = (1e-14, 1e-11, 1e-8, 1e-5, 1e-2)
CAPACITY_STRENGTHS = (1e-14, 1e-12, 1e-10)
"""Of memory capacity, times the mean square of a state."""
SIZES = {"kru": (256, 1024, 1536), "reservoirpy": (256, 1024)}
"""kru's are more: its larger reservoirs take the time of the other's smaller ones."""
CAPACITY_SIZES = (64, 256, 512)

Cell = dict[str, Any]


class Cells:
    """What was measured, a line of JSON for each cell."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path, self.run = path, run
        lines = path.read_text().splitlines() if path.exists() else []
        self.known: dict[str, Cell] = {cell["key"]: cell for cell in map(json.loads, lines)}

    def get(self, key: dict[str, Any], measure: Callable[[], Cell]) -> Cell:
        """The cell, measured if it is not known."""
        text = json.dumps(key, sort_keys=True)
        if text not in self.known:
            cell = {"key": text, **measure(), **self.run}
            with self.path.open("a") as file:
                file.write(json.dumps(cell) + "\n")
            self.known[text] = cell
        return self.known[text]


@cache
def source_digest() -> str:
    """Cells of other problems or contestants must not be taken for these."""
    here = Path(__file__).parent
    names = ("reservoir_contestants.py", "reservoir_problems.py", "series.py")
    return hashlib.sha256(b"".join((here / name).read_bytes() for name in names)).hexdigest()[:12]


def _cell(
    cells: Cells, name: str, units: int, who: str, settings: Settings, strengths: tuple[float, ...], seed: int
) -> Cell:
    """Scores of all strengths on validation data (seed 0) or of one on test data."""

    def measure() -> Cell:
        task, begun = problem(name, units), time.thread_time()
        contestant = CONTESTANTS[who](task.inputs, units, settings, seed)
        contestant.run(np.zeros((1, task.inputs)))  # ReservoirPy draws its matrices at the first step
        built = time.thread_time() - begun
        scores = task.scores(contestant, strengths, seed, test=seed > 0)
        return {"build_seconds": built, "scores": [score._asdict() for score in scores]}

    key = {"problem": name, "units": units, "who": who, "settings": asdict(settings), "seed": seed}
    return cells.get({**key, "strengths": strengths, "source": source_digest()}, measure)


def search(cells: Cells, name: str, units: int, who: str, trials: int) -> tuple[Settings, float]:
    """The settings and the strength with the best score on validation data."""
    strengths = CAPACITY_STRENGTHS if name == "memory capacity" else STRENGTHS
    better = problem(name, units).better
    best, chosen = -np.inf, (Settings(0, 0, 0, 0), 0.0)
    for settings in draw_settings(trials):
        if name == "memory capacity":  # of the linear memory, which small inputs and no leak show
            settings = Settings(0.8 + 0.2 * settings.radius / 1.1, settings.scaling / 30, 1.0, 0.0)
        cell = _cell(cells, name, units, who, settings, strengths, 0)
        for strength, score in zip(strengths, cell["scores"], strict=True):
            if np.isfinite(score["value"]) and better * score["value"] > best:
                best, chosen = better * score["value"], (settings, strength)
    return chosen


def errors(cells: Cells, trials: int, names: str = "") -> list[dict[str, Any]]:
    """A row for each problem and N; smaller N first, so that a run that is stopped has whole tables of them."""
    rows = []
    sizes = sorted({*SIZES["kru"], *CAPACITY_SIZES})
    for units in sizes:
        for name in NAMES:
            capacity = name == "memory capacity"
            present = [who for who in CONTESTANTS if units in (CAPACITY_SIZES if capacity else SIZES[who])]
            if names not in name or not present:
                continue
            row: dict[str, Any] = {
                "problem": name,
                "units": units,
                "more_is_better": problem(name, units).better > 0,
                "trials": trials,
            }
            chosen = {who: search(cells, name, units, who, trials) for who in present}
            found: dict[str, list[Cell]] = {who: [] for who in present}
            for seed in SEEDS:
                for who, (settings, strength) in chosen.items():
                    found[who].append(_cell(cells, name, units, who, settings, (strength,), seed))
            for who, (settings, strength) in chosen.items():
                row[who] = _summary(found[who]) | {"chosen": {**asdict(settings), "ridge": strength}}
            rows.append(row)
            text = ", ".join(
                f"{who} {row[who]['mean']:.4g} ± {row[who]['deviation']:.2g} in {row[who]['seconds']:.2g} s"
                for who in present
            )
            print(f"{name:22s} N = {units:5d}  {text}", flush=True)
    return rows


def _summary(cells: list[Cell]) -> dict[str, float]:
    """Mean and deviation over the seeds, and the median CPU seconds of building, fitting and predicting."""
    scores = [cell["scores"][0] for cell in cells]
    values = [score["value"] for score in scores]
    taken = [
        cell["build_seconds"] + score["fit_seconds"] + score["predict_seconds"]
        for cell, score in zip(cells, scores, strict=True)
    ]
    return {
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values, ddof=1)),
        "seconds": float(np.median(taken)),
        "predict_seconds": float(np.median([score["predict_seconds"] for score in scores])),
    }


def equal_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each row of the peer kru's largest N that took no more CPU time in all."""
    out = []
    for row in rows:
        if "reservoirpy" not in row:
            continue
        theirs = row["reservoirpy"]
        fitting = [
            other
            for other in rows
            if other["problem"] == row["problem"] and other["kru"]["seconds"] <= theirs["seconds"]
        ]
        if fitting:
            ours = max(fitting, key=lambda other: other["units"])
            out.append(
                {
                    "problem": row["problem"],
                    "more_is_better": row["more_is_better"],
                    "reservoirpy": {"units": row["units"], **theirs},
                    "kru": {"units": ours["units"], **ours["kru"]},
                }
            )
    return out
