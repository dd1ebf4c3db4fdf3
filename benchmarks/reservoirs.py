"""Echo state networks against ReservoirPy in one interleaved run: errors, memory capacity, time and memory.

    python benchmarks/reservoirs.py                  # writes results/benchmarks/reservoirs.json and the figure

Both contestants get the same settings to search among, the same data, the same ridge read-out (in float64, of state and
input) and the same seeds. Settings and regularisation are chosen on validation data with one seed at the smallest N;
the figures are from test data with five other seeds.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import reservoirpy
import series
import torch
from reservoirpy.nodes import Reservoir as Peer
from series import Array
from timing import Case, measure

from kru.ops import bindings
from kru.reservoir import EchoStateRegressor, NormalEquations, Reservoir, Stepper

WASHOUT = 100
SEEDS = (1, 2, 3, 4, 5)
STRENGTHS = tuple(10.0**power for power in range(-9, 0))


@dataclass(frozen=True)
class Settings:
    radius: float
    scaling: float
    leak: float
    bias: float
    connectivity: float = 1.0


class Contestant(Protocol):
    """A reservoir: states (T, S) of inputs (T, D) from a zero state, and one step after them."""

    def run(self, x: Array) -> Array: ...

    def step(self, x: Array) -> Array: ...


class Ours:
    def __init__(self, inputs: int, units: int, settings: Settings, seed: int) -> None:
        self.reservoir = Reservoir(
            inputs,
            units,
            spectral_radius=settings.radius,
            leak=settings.leak,
            input_scaling=settings.scaling,
            input_connectivity=settings.connectivity,
            bias_scaling=settings.bias,
            seed=seed,
            dtype=torch.float64,
        )
        self.stepper: Any = None

    def run(self, x: Array) -> Array:
        states, state = self.reservoir(torch.from_numpy(x).unsqueeze(1))
        self.stepper = Stepper(self.reservoir, state)
        found: Array = states[:, 0].numpy()
        return found

    def step(self, x: Array) -> Array:
        found: Array = self.stepper.step(torch.from_numpy(x).unsqueeze(0))[0].numpy()
        return found


class Theirs:
    def __init__(self, inputs: int, units: int, settings: Settings, seed: int) -> None:
        self.reservoir = Peer(
            units,
            lr=settings.leak,
            sr=settings.radius,
            input_scaling=settings.scaling,
            input_connectivity=settings.connectivity,
            bias=settings.bias * np.random.default_rng(seed).uniform(-1, 1, units),
            seed=seed,
        )

    def run(self, x: Array) -> Array:
        if self.reservoir.initialized:
            self.reservoir.reset()
        found: Array = self.reservoir.run(x)
        return found

    def step(self, x: Array) -> Array:
        found: Array = self.reservoir.step(x)
        return found


CONTESTANTS: dict[str, Callable[[int, int, Settings, int], Contestant]] = {"kru": Ours, "reservoirpy": Theirs}


def read_outs(states: Array, x: Array, y: Array, strengths: tuple[float, ...]) -> list[Any]:
    """Ridge regression of y on states and inputs, for each strength."""
    features = np.concatenate([states, x], 1)[WASHOUT:]
    equations = NormalEquations(features.shape[1], y.shape[1])
    equations.add(torch.from_numpy(features), torch.from_numpy(y[WASHOUT:]))
    return [equations.solve(strength) for strength in strengths]


def apply(linear: Any, state: Array, x: Array) -> Array:
    found: Array = linear(torch.from_numpy(np.concatenate([state, x], -1))).numpy()
    return found


@dataclass(frozen=True)
class Regression:
    """NRMSE of y from x one step after the other. Less is better."""

    name: str
    x: Array
    y: Array
    train: int
    hold: int
    sizes: tuple[int, ...]
    better: int = -1

    def scores(self, contestant: Contestant, strengths: tuple[float, ...], test: bool) -> list[float]:
        first = self.train + (self.hold if test else 0)
        part = slice(first, first + self.hold)
        states = contestant.run(self.x[: part.stop])
        out = []
        for linear in read_outs(states[: self.train], self.x[: self.train], self.y[: self.train], strengths):
            error = apply(linear, states[part], self.x[part]) - self.y[part]
            out.append(float(np.sqrt((error**2).mean() / self.y[part].var())))
        return out


@dataclass(frozen=True)
class FreeRun:
    """Valid prediction time: Lyapunov times until the error of a free run passes 0.4 deviations. More is better."""

    name: str
    x: Array
    train: int
    starts: int
    spacing: int
    horizon: int
    unit: float
    sizes: tuple[int, ...]
    better: int = 1

    def scores(self, contestant: Contestant, strengths: tuple[float, ...], test: bool) -> list[float]:
        x, first = self.x, self.train + (self.starts * self.spacing if test else 0)
        states = contestant.run(x[: self.train])
        fitted = read_outs(states, x[: self.train], x[1 : self.train + 1], strengths)
        valid = []
        for linear in fitted:
            times = []
            for k in range(self.starts):
                begin = first + k * self.spacing
                state, row = contestant.run(x[begin - 200 : begin + 1])[-1], x[begin]
                for t in range(self.horizon):
                    row = apply(linear, state, row)
                    error = np.sqrt(((row - x[begin + 1 + t]) ** 2).mean())
                    if not error <= 0.4:
                        break
                    state = contestant.step(row)
                times.append(t * self.unit)
            valid.append(float(np.mean(times)))
        return valid


def problems() -> list[Regression | FreeRun]:
    sizes = (256, 1024)
    out: list[Regression | FreeRun] = [
        Regression(f"NARMA-{order}", *series.narma(5000, order), 3000, 1000, sizes) for order in (10, 30)
    ]
    out.append(FreeRun("Mackey-Glass", series.mackey_glass(16000), 3000, 3, 2100, 2000, 0.006, sizes))
    out.append(FreeRun("Lorenz-63", series.lorenz(14000), 4000, 5, 950, 900, 0.02 * 0.906, sizes))
    ks = series.kuramoto_sivashinsky(13000)
    out.append(FreeRun("Kuramoto-Sivashinsky", ks, 6000, 4, 800, 700, 0.25 * 0.043, (512, 1024, 2048)))
    return out


def draw_settings(count: int) -> list[Settings]:
    """The same random settings for all contestants."""
    rng = np.random.default_rng(0)
    return [
        Settings(
            radius=round(float(rng.uniform(0.1, 1.1)), 3),
            scaling=round(float(10 ** rng.uniform(-1.5, 0.3)), 3),
            leak=1.0 if k % 2 else round(float(rng.uniform(0.2, 1.0)), 3),
            bias=round(float(rng.uniform(0.0, 1.0)), 3),
            connectivity=1.0 if k % 3 else 0.1,
        )
        for k in range(count)
    ]


def compare(problem: Regression | FreeRun, trials: int) -> dict[str, Any]:
    """Search on validation data, then five seeds on test data, the contestants in turn."""
    inputs, found, record = problem.x.shape[1], {}, {"problem": problem.name, "rows": []}
    best = dict.fromkeys(CONTESTANTS, (-np.inf, Settings(0, 0, 0, 0), 0.0))
    for settings in draw_settings(trials):
        for name, build in CONTESTANTS.items():
            scores = problem.scores(build(inputs, problem.sizes[0], settings, 0), STRENGTHS, test=False)
            for strength, score in zip(STRENGTHS, scores, strict=True):
                if np.isfinite(score) and problem.better * score > best[name][0]:
                    best[name] = (problem.better * score, settings, strength)
    record["chosen"] = {
        name: {**asdict(chosen), "ridge": strength} for name, (_, chosen, strength) in best.items()
    }
    for units in problem.sizes:
        found = {name: [] for name in CONTESTANTS}
        for seed in SEEDS:
            for name, build in CONTESTANTS.items():
                _, settings, strength = best[name]
                found[name] += problem.scores(build(inputs, units, settings, seed), (strength,), test=True)
        row = {"units": units, "more_is_better": problem.better > 0}
        for name, scores in found.items():
            row[name] = {"mean": float(np.mean(scores)), "deviation": float(np.std(scores, ddof=1))}
        record["rows"].append(row)
        text = ", ".join(f"{name} {row[name]['mean']:.4g} ± {row[name]['deviation']:.2g}" for name in found)
        print(f"{problem.name:22s} N = {units:5d}  {text}", flush=True)
    return record


def memory_capacity(sizes: tuple[int, ...], trials: int) -> dict[str, Any]:
    """sum over delays of the squared correlation between the delayed input and its read-out, on test data."""
    rng = np.random.default_rng(0)
    choices = [
        Settings(
            round(float(rng.uniform(0.8, 1.0)), 3), round(float(10 ** rng.uniform(-3, -0.5)), 4), 1.0, 0.0
        )
        for _ in range(trials)
    ]

    def capacity(contestant: Contestant, units: int, seed: int) -> float:
        train, hold = 10 * units + 1000, 1000
        u = np.random.default_rng(seed + 1000).uniform(-1, 1, (train + hold, 1))
        delays = range(1, int(1.5 * units))
        targets = np.stack([np.roll(u[:, 0], delay) for delay in delays], 1)
        states = contestant.run(u)
        equations = NormalEquations(units, targets.shape[1])
        skip = 2 * units
        equations.add(torch.from_numpy(states[skip:train]), torch.from_numpy(targets[skip:train]))
        linear = equations.solve(1e-12 * float(equations.gram.diagonal().mean()))
        got, true = linear(torch.from_numpy(states[train:])).numpy(), targets[train:]
        got, true = got - got.mean(0), true - true.mean(0)
        squares = (got * true).mean(0) ** 2 / (got.var(0) * true.var(0) + 1e-300)
        # Squared correlations of noise are 1 / hold on average, which is not memory.
        return float(np.maximum(squares - 1 / hold, 0).sum())

    rows = []
    best = {
        name: max(choices, key=lambda s, build=build: capacity(build(1, sizes[0], s, 0), sizes[0], 0))  # type: ignore[misc]
        for name, build in CONTESTANTS.items()
    }
    for units in sizes:
        row: dict[str, Any] = {"units": units}
        found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        for seed in SEEDS:
            for name, build in CONTESTANTS.items():
                found[name].append(capacity(build(1, units, best[name], seed), units, seed))
        for name, values in found.items():
            row[name] = {"mean": float(np.mean(values)), "deviation": float(np.std(values, ddof=1))}
        rows.append(row)
        text = ", ".join(f"{name} {row[name]['mean']:.4g} ± {row[name]['deviation']:.2g}" for name in found)
        print(f"{'memory capacity':22s} N = {units:5d}  {text}", flush=True)
    return {"chosen": {name: asdict(settings) for name, settings in best.items()}, "rows": rows}


def speed(seconds: float) -> list[dict[str, Any]]:
    """CPU seconds a step of states alone, one thread, float32 and float64; ReservoirPy as long as it is feasible."""
    out = []
    for power in range(8, 21):
        units = 2**power
        steps = max(4, min(2000, 2**23 // units))
        x = np.random.default_rng(0).normal(size=(steps, 3))
        row: dict[str, Any] = {"units": units, "steps": steps}
        calls: dict[str, Callable[[], object]] = {}
        for name, dtype in (("kru float32", torch.float32), ("kru float64", torch.float64)):
            inputs = torch.from_numpy(x).to(dtype).unsqueeze(1)
            for leak in (1.0, 0.5):
                reservoir = Reservoir(3, units, leak=leak, seed=0, dtype=dtype)
                calls[name + (" leak" if leak < 1 else "")] = lambda r=reservoir, i=inputs: r(i)  # type: ignore[misc]
        few = 20 if units > 4096 else min(steps, 500)
        if units <= 4096:  # setting up its spectral radius takes minutes beyond
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


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


PARTS = ("errors", "capacity", "speed", "large")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--problems", default="", help="errors of problems whose name contains this")
    parser.add_argument("--trials", type=int, default=12, help="settings searched for each problem")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each N of the speeds")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/reservoirs.json"))
    parser.add_argument("--figure", type=Path, default=Path("results/figures/reservoirs.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.time()
    record: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    run = {
        "command": " ".join(["python", "benchmarks/reservoirs.py", *sys.argv[1:]]),
        "commit": commit,
        "machine": {"cpu": processor(), "threads": 1, "simd": bindings.simd(), "torch": torch.__version__},
        "reservoirpy": reservoirpy.__version__,
        "seeds": list(SEEDS),
    }
    for part in arguments.parts:
        began = time.time()
        if part == "errors":
            known = {one["problem"]: one for one in record.get(part, [])}
            for problem in problems():
                if arguments.problems in problem.name:
                    known[problem.name] = {
                        **compare(problem, arguments.trials),
                        "trials": arguments.trials,
                        "run": run,
                    }
            record[part] = list(known.values())
        elif part == "capacity":
            record[part] = memory_capacity((64, 128, 256, 512), arguments.trials)
        elif part == "speed":
            record[part] = speed(arguments.seconds)
        else:
            record[part] = large()
        # Another part may have been measured meanwhile.
        stored = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        record = {**stored, part: record[part]}
        record.setdefault("runs", {})[part] = {**run, "wall_seconds": round(time.time() - began, 1)}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rounded(record), indent=1) + "\n")
    if "speed" in record and "large" in record:
        draw(record, arguments.figure)
    print(f"written to {arguments.out} after {time.time() - start:.0f} s")


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
