"""How often values lie within a forecaster's 90 % intervals, and how wide these are, on generated and real series.

    python benchmarks/intervals.py            # prints a table, writes results/benchmarks/intervals.json

Each forecaster is fitted to the first 70 % of a series and forecasts six steps from every origin in the rest, which
takes no part in any choice. "constant" and "gaussian" are settings of `KRUForecaster(interval=...)`; "auto", the
default, is one of the two, chosen on data before the rest. The interval score (Gneiting and Raftery, 2007) is the
width, plus 2 / 0.1 times the distance by which a value lies outside: lower is better.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kru.estimators import KRUForecaster, backtest
from kru.lab.result import commit, machine

Values = NDArray[np.float64]
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "intervals.json"
HORIZON, LEVEL, STEPS = 6, 0.9, 150


def generated(seed: int) -> dict[str, Values]:
    """Series with errors of one size, and with errors that depend on the level or on the past."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=650)
    ar, calm, burst = np.zeros(450), np.zeros(650), np.zeros(650)
    for t in range(2, len(ar)):
        ar[t] = 1.6 * ar[t - 1] - 0.8 * ar[t - 2] + noise[t]
    variance = 1.0
    for t in range(1, len(calm)):
        variance = 0.05 + 0.15 * calm[t - 1] ** 2 + 0.82 * variance
        calm[t] = np.sqrt(variance) * noise[t]
        burst[t] = 0.7 * burst[t - 1] + (0.3 if (t // 40) % 2 else 1.5) * noise[t]
    time_ = np.arange(400)
    cycle = 10 + 8 * np.sin(time_ / 8)
    return {
        "AR(2)": ar[50:],
        "random walk": 100 + np.cumsum(noise[:400]),
        "trend and cycle": 0.02 * time_ + np.sin(time_ / 2) + 0.3 * rng.standard_t(4, size=400),
        "noise as the level": cycle + 0.15 * cycle * noise[:400],
        "GARCH": calm[50:],
        "calm and bursts": burst[50:],
    }


def measured() -> dict[str, Values]:
    """Series that come with statsmodels."""
    import statsmodels.api as sm

    macro = sm.datasets.macrodata.load_pandas().data
    return {
        "Nile": sm.datasets.nile.load_pandas().data["volume"].to_numpy(np.float64),
        "El Nino": sm.datasets.elnino.load_pandas().data.iloc[:, 1:].to_numpy(np.float64).ravel(),
        "US inflation": macro["infl"].to_numpy(np.float64),
        "US unemployment": macro["unemp"].to_numpy(np.float64),
        "US bill rate": macro["tbilrate"].to_numpy(np.float64),
        "US product": macro["realgdp"].to_numpy(np.float64),
    }


def run(name: str, y: Values) -> dict[str, object]:
    known = int(0.7 * len(y))
    row: dict[str, object] = {"series": name, "values": len(y)}
    began = time.perf_counter()
    for interval in ("constant", "gaussian"):
        model = KRUForecaster(HORIZON, steps=STEPS, interval=interval, random_state=0).fit(y[:known])
        result = backtest(model, y, start=known, level=LEVEL)
        outside = np.maximum(result.lower - result.actual, 0) + np.maximum(result.actual - result.upper, 0)
        score = (result.upper - result.lower + 2 / (1 - LEVEL) * outside).mean()
        row[interval] = {
            "coverage": result.coverage.tolist(),
            "mean_coverage": float(result.coverage.mean()),
            "score": float(score / y.std()),
        }
    chosen = KRUForecaster(HORIZON, steps=STEPS, random_state=0).fit(y[:known])
    row["auto"] = "constant" if chosen.spread_ is None else "gaussian"
    row["seconds"] = time.perf_counter() - began
    return row


def main() -> int:
    rows = []
    for name, y in {**generated(1), **measured()}.items():
        rows.append(run(name, y))
        a, b = (rows[-1][key] for key in ("constant", "gaussian"))
        print(
            f"| {name} | {a['mean_coverage']:.0%} | {b['mean_coverage']:.0%} | {a['score']:.2f} | {b['score']:.2f} | "
            f"{rows[-1]['auto']} |",
            flush=True,
        )
    command = " ".join(["python", *sys.argv])
    record = {"command": command, "commit": commit(), "machine": machine(), "seed": 1, "rows": rows}
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
