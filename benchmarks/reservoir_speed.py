"""Time a step and memory of a fit against N, up to 2^20 units, and their figure."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import reservoirpy
import torch
from reservoirpy.nodes import Reservoir as Peer
from timing import Case, measure

from kru.reservoir import EchoStateRegressor, Reservoir

PEER_LIMIT = 4096
"""Setting up ReservoirPy's spectral radius takes minutes beyond."""


def speed(seconds: float, sizes: list[int]) -> list[dict[str, Any]]:
    """CPU seconds a step of states alone, one thread, float32 and float64; ReservoirPy as long as it is feasible."""
    out = []
    for units in sizes:
        steps = max(4, min(2000, 2**23 // units))
        x = np.random.default_rng(0).normal(size=(steps, 3))
        row: dict[str, Any] = {"units": units, "steps": steps}
        calls: dict[str, Callable[[], object]] = {}
        for name, dtype in (("kru float32", torch.float32), ("kru float64", torch.float64)):
            inputs = torch.from_numpy(x).to(dtype).unsqueeze(1)
            for leak in (1.0, 0.5):
                reservoir = Reservoir(3, units, leak=leak, seed=0, dtype=dtype)
                calls[name + (" leak" if leak < 1 else "")] = lambda r=reservoir, i=inputs: r(i)  # type: ignore[misc]
        few = min(steps, 500)
        if units <= PEER_LIMIT:
            peer = Peer(units, sr=0.9, input_connectivity=1.0, seed=0)
            calls["reservoirpy"] = partial(peer.run, x[:few])
            single = Peer(units, sr=0.9, input_connectivity=1.0, seed=0, dtype=np.float32)
            calls["reservoirpy float32"] = partial(single.run, x[:few].astype(np.float32))
        timings = measure(Case(str(units), calls), seconds, clock=time.thread_time)
        for name, timing in timings.items():
            row[name] = timing.median / (few if name.startswith("reservoirpy") else steps)
        peer_text = ""
        if "reservoirpy" in row:
            row["ratio"] = row["reservoirpy float32"] / row["kru float32"]
            row["ratio_float64"] = row["reservoirpy"] / row["kru float64"]
            peer_text = (
                f"  reservoirpy takes {row['ratio']:.0f} times as long, in float64 {row['ratio_float64']:.1f}"
            )
        print(
            f"N = {units:7d}: kru {row['kru float32'] * 1e6:.4g} us a step, float64 {row['kru float64'] * 1e6:.4g}, "
            f"with leak {row['kru float32 leak'] * 1e6:.4g}{peer_text}",
            flush=True,
        )
        out.append(row)
    return out


def _large(units: int, steps: int, queue: Any) -> None:
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    u = np.random.default_rng(0).uniform(-1, 1, (1, steps))
    start = time.perf_counter()
    model = EchoStateRegressor(units, precision="float32", ridge=1e-3, washout=50, n_features=256)
    model.fit(u, np.roll(u, 5))
    taken = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue.put(
        {
            "units": units,
            "steps": steps,
            "fit_seconds": taken,
            "peak_mb": after / 1024,
            "start_mb": before / 1024,
        }
    )


def large() -> list[dict[str, Any]]:
    """A whole fit, reservoir and read-out, in a process of its own: time and peak memory against N."""
    out = []
    context = multiprocessing.get_context("spawn")
    for power in (10, 12, 14, 16, 18, 20):
        queue = context.Queue()
        process = context.Process(target=_large, args=(2**power, 400, queue))
        process.start()
        row = queue.get(timeout=600)
        process.join()
        out.append(row)
        print(
            f"N = 2^{power}: fitted to 400 steps in {row['fit_seconds']:.2f} s, peak {row['peak_mb']:.0f} MB "
            f"({row['start_mb']:.0f} before)",
            flush=True,
        )
    return out


def draw(record: dict[str, Any], path: Path) -> None:
    """Time a step and peak memory of a fit against N."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    rows = record["speed"]
    for name, label in (
        ("reservoirpy", f"ReservoirPy {reservoirpy.__version__}, float64"),
        ("reservoirpy float32", "ReservoirPy, float32"),
        ("kru float64", "kru.reservoir, float64"),
        ("kru float32", "kru.reservoir, float32"),
    ):
        points = [(row["units"], row[name]) for row in rows if name in row]
        left.loglog(*zip(*points, strict=True), "o-", markersize=3, label=label)
    left.set(xlabel="units N", ylabel="CPU seconds a step", title="one thread")
    left.legend(fontsize=7)
    right.loglog(
        *zip(*[(r["units"], r["peak_mb"] - r["start_mb"]) for r in record["large"]], strict=True),
        "o-",
        markersize=3,
        color="C1",
    )
    right.set(xlabel="units N", ylabel="MB", title="peak memory of a fit to 400 steps")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
