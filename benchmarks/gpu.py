"""On a machine with a GPU: do the kernels agree with the float64 reference, and how long do they take?

python benchmarks/gpu.py [--out gpu.json] [--repeats 20]

First every case is compared with the reference in double precision, results and gradients. Only if all agree, times
follow: kru's kernels, PyTorch's loop (kru's fallback), the same loop under torch.compile, and the LSTM and GRU of cuDNN
or MIOpen with as many units. They take turns; medians count. Bandwidth is counted from the tensors that have to be read
and written, arithmetic from the products with the factors. The record goes to a JSON file to send in.

The exit code is 0 if all agree, 1 if not, 2 without a GPU.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kru
from kru.lab.result import commit, machine
from kru.ops import gpu, scan
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.fallback import scan_fallback
from kru.ops.scan.reference import scan_reference

TOLERANCE = 2e-4
"""Of the largest entry: float32 over the few steps of the comparison."""


@dataclass(frozen=True)
class Case:
    """A recurrence of the paper's sizes: modReLU and complex, or LSTM or GRU."""

    cell: str
    factors: tuple[int, ...]
    steps: int
    batch: int

    @property
    def units(self) -> int:
        return prod(self.factors)

    @property
    def name(self) -> str:
        shape = f"2^{len(self.factors)}" if set(self.factors) == {2} else "x".join(map(str, self.factors))
        return f"{self.cell} {shape}, T={self.steps}, B={self.batch}"

    @property
    def width(self) -> int:
        """Real numbers of a state, times the gates."""
        return {"elman": 2, "lstm": 4, "gru": 3}[self.cell] * self.units

    def operations(self) -> float:
        """Floating point operations of the products in a forward pass."""
        each = {"elman": 8, "lstm": 8, "gru": 6}[self.cell]
        return float(each * self.steps * self.batch * self.units * sum(self.factors))

    def traffic(self) -> float:
        """Bytes of the input parts and states of a forward pass."""
        state = self.units * (2 if self.cell == "elman" else 1)
        return 4.0 * self.steps * self.batch * (self.width + state)

    def tensors(self, device: torch.device, dtype: torch.dtype, steps: int | None = None) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        leading = {"elman": 2, "lstm": 4, "gru": 3}[self.cell]
        x = torch.randn(steps or self.steps, self.batch, self.width, generator=generator) / 4
        factors = []
        for size in self.factors:
            square = torch.randn(leading, size, size, generator=generator)
            factor = torch.linalg.qr(square)[0] / (2**0.5 if self.cell == "elman" else 1)
            factors.append(factor.to(device, dtype).requires_grad_())
        bias = -0.01 * torch.rand(self.units, generator=generator) if self.cell == "elman" else None
        return {
            "x": x.to(device, dtype).requires_grad_(),
            "factors": factors,
            "bias": None if bias is None else bias.to(device, dtype).requires_grad_(),
        }

    def arguments(self, tensors: dict[str, Any]) -> ScanArguments:
        return ScanArguments(
            tensors["x"],
            None,
            tensors["factors"],
            tensors["bias"],
            cell=self.cell,
            is_complex=self.cell == "elman",
        )

    def kernels(self, tensors: dict[str, Any]) -> Tensor:
        field = "complex" if self.cell == "elman" else "real"
        return scan(
            tensors["x"], None, tensors["factors"], cell=self.cell, field=field, bias=tensors["bias"]
        ).states


CASES = (
    Case("elman", (2,) * 7, 1020, 20),
    Case("elman", (2,) * 9, 784, 50),
    Case("elman", (2,) * 9, 784, 512),
    Case("elman", (2,) * 11, 300, 128),
    Case("elman", (3, 137), 30, 50),
    Case("lstm", (128, 16), 300, 32),
    Case("gru", (2,) * 7, 1000, 64),
)


def leaves(tensors: dict[str, Any]) -> list[Tensor]:
    return [t for t in (tensors["x"], *tensors["factors"], tensors["bias"]) if t is not None]


def disagreement(case: Case, device: torch.device) -> float:
    """The largest difference from the reference in double precision, over the largest entry, of all results."""
    steps = min(case.steps, 12)
    found, expected = [], []
    for dtype, results in ((torch.float32, found), (torch.float64, expected)):
        tensors = case.tensors(device, dtype, steps)
        fast = dtype is torch.float32
        states = case.kernels(tensors) if fast else scan_reference(case.arguments(tensors))[0]
        weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        results += [states.detach(), *torch.autograd.grad((states * weights).sum(), leaves(tensors))]
    return max(
        float((got - want).abs().max() / want.abs().max().clamp(min=1e-6))
        for got, want in zip(found, expected, strict=True)
    )


def contestants(case: Case, device: torch.device) -> dict[str, Callable[[], object]]:
    """Training steps by name: forward, sum, backward."""
    tensors = case.tensors(device, torch.float32)

    def step(function: Callable[[], Tensor], inputs: list[Tensor]) -> Callable[[], None]:
        def run() -> None:
            torch.autograd.grad(function().sum(), inputs)

        return run

    arguments = case.arguments(tensors)
    looped = torch.compile(lambda: scan_fallback(arguments)[0])
    runs: dict[str, Callable[[], object]] = {
        "kernels": step(lambda: case.kernels(tensors), leaves(tensors)),
        "PyTorch loop": step(lambda: scan_fallback(arguments)[0], leaves(tensors)),
    }
    if case.steps <= 100:  # torch.compile unrolls the loop: more steps take it many minutes
        runs["compiled loop"] = step(looped, leaves(tensors))
    for name, kind in (("nn.LSTM", torch.nn.LSTM), ("nn.GRU", torch.nn.GRU)):
        layer = kind(16, case.units).to(device)
        x = torch.randn(case.steps, case.batch, 16, device=device)
        runs[name] = step(lambda layer=layer, x=x: layer(x)[0], list(layer.parameters()))
    return runs


def inference(case: Case, device: torch.device) -> Callable[[], None]:
    tensors = case.tensors(device, torch.float32)

    def run() -> None:
        with torch.no_grad():
            case.kernels(tensors)

    return run


def timed(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median milliseconds; the contestants take turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 2):
        for name, run in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if repeat >= 2:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def limits(device: torch.device) -> dict[str, float]:
    """What this GPU reaches: float32 operations per second of a large product, bytes per second of a copy."""
    a = torch.randn(8192, 8192, device=device)
    b = torch.empty(1 << 28, device=device)
    times = timed({"product": lambda: torch.mm(a, a), "copy": b.clone}, 10)
    seconds = {name: milliseconds / 1e3 for name, milliseconds in times.items()}
    return {"flops": 2 * 8192**3 / seconds["product"], "bytes": 2 * b.nbytes / seconds["copy"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the record")
    parser.add_argument("--repeats", type=int, default=20, help="timed repetitions of each contestant")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: torch sees no CUDA or ROCm device")
        return 2
    device = torch.device("cuda", torch.cuda.current_device())
    kernels = gpu.works(device.index)
    print(
        f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, kru {kru.__version__}: {gpu.status()}"
    )
    if not kernels:
        print("the GPU kernels cannot be used here; the warning above says why")
        return 1
    record: dict[str, Any] = {
        "command": "python benchmarks/gpu.py", "commit": commit(), "machine": machine(device),
        "capability": torch.cuda.get_device_capability(device), "agreement": {}, "limits": {}, "cases": {},
    }  # fmt: skip
    print("\nagreement with the float64 reference, relative to the largest entry:")
    for case in CASES:
        error = disagreement(case, device)
        record["agreement"][case.name] = error
        print(f"  {case.name:32} {error:.1e}{'' if error <= TOLERANCE else '   TOO LARGE'}")
    agrees = all(error <= TOLERANCE for error in record["agreement"].values())
    if agrees:
        record["limits"] = limits(device)
        print("\nmilliseconds of a training step (forward and backward), median:")
        for case in CASES:
            runs = contestants(case, device)
            times = timed(runs, options.repeats)
            forward = inference(case, device)
            seconds = timed({"forward": forward}, options.repeats)["forward"] / 1e3
            shares = {
                "share_of_flops": case.operations() / seconds / record["limits"]["flops"],
                "share_of_bandwidth": case.traffic() / seconds / record["limits"]["bytes"],
            }
            record["cases"][case.name] = {
                "milliseconds": times,
                "forward_milliseconds": 1e3 * seconds,
                **shares,
            }
            print(f"  {case.name:32} " + ", ".join(f"{name} {ms:.2f}" for name, ms in times.items()))
            print(
                f"  {'':32} forward {1e3 * seconds:.2f}: {shares['share_of_flops']:.0%} of the product's rate, "
                f"{shares['share_of_bandwidth']:.0%} of the copy's"
            )
    else:
        print("\nThe numbers disagree, so no times are measured. Please send the record in all the same.")
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\nrecord: {options.out}")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
