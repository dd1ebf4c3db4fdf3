"""`make bench`: every shape of the performance targets, contestants interleaved, as a table and as JSON."""

import argparse
import json
import math
import platform
import subprocess
import time
from pathlib import Path

import baselines
import products
import sequences
import torch
from timing import Case, Timing, measure

from kru.ops import bindings


def peak() -> dict[str, float]:
    """GFLOP/s of multiply-adds of one core in registers, and of torch's own matrix product on all threads."""
    assert bindings.library is not None, "the benchmarks need the native library"
    a = torch.randn(1024, 1024)
    gemm = measure(Case("sgemm", {"sgemm": lambda: a @ a}), 1.0)["sgemm"]
    one = bindings.library.kru_fma_rate(0, 0.5) / 1e9
    return {
        "fma_one_core": one,
        "fma": one * torch.get_num_threads(),
        "sgemm": 2 * 1024**3 / gemm.minimum / 1e9,
    }


def describe(seconds: float) -> str:
    return f"{seconds * 1e6:9.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:9.2f} ms"


def rows(case: Case, timings: dict[str, Timing]) -> list[dict[str, object]]:
    """A row of the table for each target, or for each peer where there is none."""
    ours = timings["kru"]
    pairs = case.targets or [(name, "kru", 0.0) for name in timings if name != "kru"]
    out: list[dict[str, object]] = []
    for slower, _, least in pairs:
        ratio = timings[slower].median / ours.median
        best = timings[slower].minimum / ours.minimum
        out.append(
            {"case": case.name, "against": slower, "ratio": ratio, "ratio_of_minima": best, "target": least}
        )
    return out


def show(row: dict[str, object], timings: dict[str, Timing]) -> None:
    target = float(row["target"])  # type: ignore[arg-type]
    ratio, best = float(row["ratio"]), float(row["ratio_of_minima"])  # type: ignore[arg-type]
    # Judged by the medians alone; the ratio of the minima stands beside it.
    verdict = "" if not target else ("reached" if ratio >= target else f"{ratio / target:.2f} of it")
    ours, peer = timings["kru"], timings[str(row["against"])]
    print(
        f"{row['case']:58s} {describe(ours.median)}  {row['against']:14s} {describe(peer.median)} "
        f"{ratio:7.1f}x ({best:.1f}x)" + (f"  target {target:g}x: {verdict}" if target else ""),
        flush=True,
    )


def single(name: str, value: float, unit: str, target: float, at_most: bool) -> dict[str, object]:
    reached = value <= target if at_most else value >= target
    word = "at most" if at_most else "at least"
    part = target / value if at_most else value / target
    print(
        f"{name:58s} {value:9.1f} {unit}  target {word} {target:.4g}: "
        + ("reached" if reached else f"{part:.2f} of it")
    )
    return {"case": name, "value": value, "unit": unit, "target": target, "at_most": at_most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/engine.json"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    start = time.time()
    rates = peak()
    print(
        f"{bindings.simd()}, {torch.get_num_threads()} threads, torch {torch.__version__}; multiply-add peak "
        f"{rates['fma']:.0f} GFLOP/s, sgemm {rates['sgemm']:.0f}.\n"
        "Times are medians, ratios those of medians (of minima).\n"
    )
    table: list[dict[str, object]] = []
    seconds: dict[str, dict[str, Timing]] = {}

    def run(case: Case) -> dict[str, Timing]:
        seconds[case.name] = measure(case, arguments.seconds)
        return seconds[case.name]

    for case in [*products.cases(), *sequences.cases(), *baselines.cases()]:
        if arguments.only in case.name:
            timings = run(case)
            for row in rows(case, timings):
                show(row, timings)
                table.append(row)
    if arguments.only in "dispatch":
        taken = run(products.dispatch())["kru"].median * 1e6
        table.append(single("dispatch, 9 factors, no gradient", taken, "us", 10.0, at_most=True))
    if arguments.only in "KRU 411":
        case, flops = sequences.penn_treebank()
        rate = flops / run(case)["kru"].median / 1e9
        table.append(
            single(f"{case.name}, Kronecker GFLOP/s", rate, "GFLOP/s", rates["sgemm"] / 2, at_most=False)
        )
    if arguments.only in "growth":
        print(
            "\nGrowth with N, complex 2x2 factors, 2^18 values in all: ns per value, and per value and factor"
        )
        for power in range(7, 17):
            per_value = run(products.growth(power))["kru"].median / 2**18 * 1e9
            print(f"  N = 2^{power:<2d} {per_value:8.2f} {per_value / power:8.3f}")
            table.append(
                {
                    "case": f"growth 2^{power}",
                    "ns_per_value": per_value,
                    "ns_per_value_and_factor": per_value / power,
                }
            )
    for name, flops in (("128 x 2^11 f32", 2.0), ("128 x 2^11 c64", 8.0)):
        for case_name, timings in seconds.items():
            if name in case_name and "backward" not in case_name:
                rate = flops * 128 * 2048 * 22 / timings["kru"].minimum / 1e9
                part = 100 * rate / rates["fma"]
                print(f"kron_matmul {name}: {rate:.0f} GFLOP/s, {part:.0f}% of the multiply-add peak")
    write(arguments.out, rates, table, seconds, time.time() - start)


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def write(
    path: Path,
    rates: dict[str, float],
    table: list[dict[str, object]],
    seconds: dict[str, dict[str, Timing]],
    took: float,
) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    record = {
        "command": "make bench",
        "commit": commit,
        "machine": {
            "cpu": processor(),
            "threads": torch.get_num_threads(),
            "simd": bindings.simd(),
            "torch": torch.__version__,
        },
        "wall_seconds": round(took, 1),
        "peak_gflops": rates,
        "rows": table,
        "seconds": {
            case: {
                name: {"median": t.median, "minimum": t.minimum, "rounds": t.rounds}
                for name, t in timings.items()
            }
            for case, timings in seconds.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(record), indent=1) + "\n")
    print(f"\nwritten to {path}")


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
