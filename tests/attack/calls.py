"""Random valid calls of the kernels, compared with the reference and with the equations in double precision."""

import hashlib
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.library import opcheck

import kru
from kru.ops import bindings, scan
from kru.ops.chain import chain_scan
from kru.ops.chain.reference import chain_scan_reference
from kru.ops.chain.stages import Diagonal, Fourier, Permutation, Reflection, Rotations, Stage, to_program
from kru.ops.scan.arguments import TENSORS, ScanArguments
from kru.sound import SoundFeatures, vary
from tests.ops.kron_cases import KronCase, assert_dense, random_kron_case
from tests.ops.scan_cases import (
    TOLERANCE,
    ScanCase,
    assert_equal,
    assert_three_ways,
    random_scan_case,
    split,
    threads,
)

from .pool import Case, FoundError


class Calls:
    """Runs `function(rng)` for each case, with fresh memory full of NaN."""

    def __init__(self, name: str, function: Any, simd: str = "") -> None:
        self.name, self.function, self.simd = name, function, simd

    def run(self, case: Case, folder: Path, again: bool) -> str:
        if self.simd and bindings.simd() != self.simd:
            raise FoundError(f"expected the kernels of {self.simd}, got those of {bindings.simd()}")
        torch.manual_seed(case.index)
        torch.use_deterministic_algorithms(True, warn_only=True)  # fills fresh memory with NaN
        return str(self.function(case.rng()))


def product(rng: Random) -> KronCase:
    case = random_kron_case(rng)
    if rng.random() < 0.1:
        sizes = [rng.choice([1, 2, 3, 7, 8, 9, 16, 17, 31, 33]) for _ in range(rng.randint(1, 2))]
        case = replace(case, shapes=tuple((size, rng.choice([size, 5])) for size in sizes))
    with threads(rng.choice([1, 1, 2, 3])):
        assert_dense(case)
    return case


def recurrence(rng: Random) -> ScanCase:
    case = _scan_case(rng)
    assert_three_ways(case, dense=rng.random() < 0.5)
    return case


def _scan_case(rng: Random) -> ScanCase:
    case = random_scan_case(rng)
    leak = case.cell == "elman" and rng.random() < 0.4
    changes: dict[str, Any] = {"leak": leak}
    if rng.random() < 0.1:
        changes["batch"] = rng.choice([7, 8, 9, 15, 16, 17, 33])
    if rng.random() < 0.05:
        changes["steps"] = rng.choice([20, 65])
    if rng.random() < 0.1 and case.rank is None:
        changes["shapes"] = rng.choice([((16, 16), (2, 2)), ((33, 33),), ((2, 2),) * 7, ((2, 2),) * 8])
    return replace(case, **changes)


def stages(rng: Random, size: int, dtype: torch.dtype) -> list[Stage]:
    """A random chain of random length."""
    wide = torch.complex64 if dtype is torch.float32 else torch.complex128

    def phases(count: int) -> Tensor:
        return torch.polar(torch.ones(count, dtype=dtype), 7 * torch.rand(count, dtype=dtype))

    made: list[Stage] = []
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice([Diagonal, Fourier, Reflection, Permutation, Rotations])
        if kind is Diagonal:
            made.append(Diagonal((phases(size),)))
        elif kind is Fourier:
            made.append(Fourier((), inverse=rng.random() < 0.5))
        elif kind is Reflection:
            made.append(Reflection((torch.randn(size, dtype=wide),)))
        elif kind is Permutation:
            made.append(Permutation((torch.randperm(size),)))
        elif size > 1:
            distance = rng.choice([d for d in (1, 2, 3, 4, 8) if 2 * d <= size])
            first = rng.randint(0, size - 2 * distance)
            blocks = rng.randint(1, (size - first) // (2 * distance))
            angle = 7 * torch.rand(blocks * distance, dtype=dtype)
            turn = (angle.cos(), angle.sin(), phases(len(angle)))
            made.append(Rotations(turn, first=first, distance=distance))
    return made or [Diagonal((phases(size),))]


def chain_arguments(rng: Random) -> dict[str, Any]:
    """Arguments of `chain_scan`, all that can be learnt with a gradient."""
    dtype = rng.choice([torch.float32, torch.float64])
    size = rng.choice([1, 2, 3, 4, 5, 8, 12, 16, 17, 30, 64])
    steps, batch = rng.randint(0, 5), rng.choice([0, 1, 2, 3, 7, 8, 9, 16, 17])
    made = stages(rng, size, dtype)
    weight: Tensor | None = None
    kind = rng.choice(["part", "dense", "symbols"])
    if kind == "part":
        x = torch.randn(steps, batch, 2 * size, dtype=dtype)
    else:
        inputs = rng.choice([1, 2, 3, 16, 17, 20])
        weight = torch.randn(2 * size, inputs, dtype=dtype) / 2
        x = torch.randn(steps, batch, inputs, dtype=dtype)
        if kind == "symbols":
            x = torch.randint(inputs, (steps, batch), dtype=rng.choice([torch.int32, torch.int64]))
    if rng.random() < 0.3:
        x = x.repeat(1, 1, *([2] if x.dim() == 3 else []))
        x = x[..., ::2] if x.dim() == 3 else x.mT.contiguous().mT
    if kind == "part" and x.shape[-1] != 2 * size:
        x = x[..., : 2 * size]
    lengths = torch.randint(steps + 1, (batch,)) if rng.random() < 0.5 else None
    bias = 0.3 * torch.randn(size, dtype=dtype) if rng.random() < 0.7 else None
    h0 = torch.randn(batch, 2 * size, dtype=dtype) if rng.random() < 0.5 else None
    learnt = [x, weight, bias, h0, *(t for stage in made for t in stage.tensors)]
    for t in learnt:
        if t is not None and (t.is_floating_point() or t.is_complex()):
            t.requires_grad_()
    return {
        "x": x,
        "weight": weight,
        "stages": made,
        "bias": bias,
        "h0": h0,
        "lengths": lengths,
        "reverse": rng.random() < 0.5,
    }


def _learnt(arguments: dict[str, Any]) -> list[Tensor]:
    named = [arguments[name] for name in ("x", "weight", "bias", "h0")]
    inner = [t for stage in arguments["stages"] for t in stage.tensors]
    return [t for t in [*named, *inner] if t is not None and t.requires_grad]


def chain(rng: Random) -> str:
    arguments = chain_arguments(rng)
    leaves = _learnt(arguments)
    results = []
    count = rng.choice([1, 1, 2, 3])
    weights: list[Tensor] = []
    for run in (chain_scan, chain_scan_reference):
        with threads(count):
            found = run(**arguments)
            weights = weights or [torch.randn_like(r) for r in found]
            loss = sum((r * w).sum() for r, w in zip(found, weights, strict=True))
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True) if leaves else ()
        tensors = dict(enumerate([*found, *gradients]))
        results.append(
            {str(k): torch.zeros(()) if t is None else torch.view_as_real(t) if t.is_complex() else t
             for k, t in tensors.items()}
        )  # fmt: skip
    about = f"{[type(s).__name__ for s in arguments['stages']]}, x {tuple(arguments['x'].shape)}"
    got, expected = ({k: t.detach() for k, t in r.items()} for r in results)
    dtype = arguments["weight"].dtype if arguments["weight"] is not None else arguments["x"].dtype
    for key, tensor in got.items():
        if tensor.dim() == 0 and expected[key].numel():  # a gradient that is not there stands for zeros
            got[key] = torch.zeros_like(expected[key])
        elif expected[key].dim() == 0:
            expected[key] = torch.zeros_like(tensor)
    assert_equal(got, expected, 10 * TOLERANCE[dtype], about)
    return about


LAYERS = (kru.KRU, kru.KRULSTM, kru.KRUGRU, kru.baselines.RCURNN, kru.baselines.EURNN)


def layers(rng: Random) -> str:
    """A layer with resets gives what separate calls with the pieces give; sequences padded or not, in either order."""
    kind = rng.choice(LAYERS)
    units = rng.choice([4, 6, 8, 12])
    if kind is kru.baselines.EURNN or kind is kru.baselines.RCURNN:
        units = rng.choice([4, 8])
    options: dict[str, Any] = {"num_layers": rng.choice([1, 1, 2]), "bidirectional": rng.random() < 0.3}
    layer = kind(3, units, dtype=torch.float64, **options)
    steps, batch = rng.randint(1, 7), rng.randint(1, 4)
    x = torch.randn(steps, batch, 3, dtype=torch.float64)
    reset = torch.rand(steps, batch) < 0.4
    options["reset"] = reset.tolist()
    whole = layer(x, reset=reset)[0]
    for b in range(batch):
        starts = [0, *(t for t in range(1, steps) if reset[t, b]), steps]
        pieces = [layer(x[i:j, b : b + 1])[0] for i, j in pairwise(starts)]
        error = (torch.cat(pieces)[:, 0] - whole[:, b]).abs().max()
        if not error < 1e-10:
            raise FoundError(f"{kind.__name__} {options}: sequence {b} is off by {float(error):.2e}")
    return f"{kind.__name__} {options}"


def operators(rng: Random) -> str:
    """opcheck on the operators themselves."""
    which = rng.choice(["scan", "product", "chain"])
    tests: tuple[str, ...] = ("test_schema", "test_faketensor", "test_autograd_registration")
    if rng.random() < 0.05:
        tests = (*tests, "test_aot_dispatch_dynamic")
    torch.use_deterministic_algorithms(False)  # NaN in fresh memory is no difference to it
    if which == "scan":
        case = replace(_scan_case(rng), batch=rng.randint(1, 3), steps=rng.randint(1, 3), threads=1)
        opcheck(torch.ops.kru.scan, scan_arguments(case, rng.random() < 0.7), test_utils=tests)
        return str(case)
    if which == "product":
        kron = replace(random_kron_case(rng), leading=(rng.randint(1, 3),))
        x, factors = kron.tensors(kron.leaves())
        x, factors = x.detach().requires_grad_(), [f.detach().requires_grad_() for f in factors]
        opcheck(torch.ops.kru.kron_matmul, (x, factors), test_utils=tests)
        return str(kron)
    a = chain_arguments(rng)
    tensors, program = to_program(a["stages"])
    named = (a["x"], a["weight"], a["bias"], a["h0"], a["lengths"])
    arguments = (*(t if t is None else _leaf(t) for t in named), [_leaf(t) for t in tensors], program)
    opcheck(torch.ops.kru.chain_scan, (*arguments, a["reverse"]), test_utils=tests)
    return str(program)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def scan_arguments(case: ScanCase, learnt: bool) -> list[Any]:
    """In the operator's order."""
    named, factors = split(case.tensors())
    for t in (*named.values(), *factors):
        if t is not None and t.is_floating_point():
            t.requires_grad_(learnt)
    optional = [named[name] for name in ScanArguments._fields[3:TENSORS]]
    settings = [case.cell, case.nonlinearity, case.field == "complex", case.reverse]
    return [named["x"], named["weight"], factors, *optional, *settings, learnt]


def forks(rng: Random) -> str:
    """Two children at once compute what this process computes, with changing numbers of threads.

    All that torch itself computes is small: its own threads do not survive a fork.
    """
    inputs = rng.choice(["small", "symbols", "part"])
    case = replace(_scan_case(rng), inputs=inputs, size=3 if inputs != "part" else None, threads=1)
    x = torch.randn(rng.choice([3, 300, 20_000]), 64)
    factors = [torch.randn(8, 8) for _ in range(2)]
    named, matrices = split(case.tensors())
    leaf = matrices[0].requires_grad_()
    torch.use_deterministic_algorithms(False)

    def compute(count: int) -> bytes:
        with threads(count):
            tensors = [kru.kron_matmul(x, factors)]
            result = scan(named["x"], named["weight"], matrices, **others, **case.settings)
            tensors += [
                result.states,
                result.h,
                torch.autograd.grad(result.states.sum() + result.h.sum(), leaf)[0],
            ]
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        return digest.digest()

    others = {name: t for name, t in named.items() if name not in ("x", "weight")}
    first, second = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    if rng.random() < 0.5:
        compute(rng.choice([1, 2, 3]))
    children = []
    for _ in range(2):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, compute(first) + compute(second))
            os._exit(0)
        os.close(writing)
        children.append((child, reading))
    here = compute(first) + compute(second)
    for child, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status or said != here:
            raise FoundError(f"{case}: a forked child computes something else (exit code {status})")
    return str(case)


def features(rng: Random) -> str:
    """MFCC and log mel spectra against their definition, and variants of sounds."""
    rate = rng.choice([2000, 4000, 8000, 11_025, 16_000])
    settings: dict[str, Any] = {"window": rng.uniform(0.01, 0.04)}
    settings["hop"] = settings["window"] * rng.uniform(0.1, 1)
    settings["preemphasis"] = rng.choice([0, 0.5, 0.97, 1])
    settings["lifter"] = rng.choice([0, 5, 22])
    kind = rng.choice(["mfcc", "log-mel"])
    try:
        found = SoundFeatures.of(rate, kind, **settings)
    except ValueError:
        return f"refused {rate} {settings}"
    generator = np.random.default_rng(rng.randrange(2**32))
    samples = generator.normal(size=rng.randint(0, 3 * found.window)) * 10 ** rng.uniform(-9, 3)
    got = found.transform(samples)
    expected = np.array([_frame(found, samples[at:][: found.window])
                         for at in range(0, len(samples) - found.window + 1, found.hop)])  # fmt: skip
    if got.shape != (len(expected), found.size) or not np.allclose(
        got, expected.reshape(got.shape), 1e-7, 1e-7
    ):
        raise FoundError(f"{found}: features differ from their definition")
    seed = rng.randrange(2**32)
    sound = generator.normal(size=(rng.randint(1, 3), rng.randint(1, 500)))
    varied = [vary(sound.copy(), rate, np.random.default_rng(seed)) for _ in range(2)]
    if not np.array_equal(*varied) or not np.isfinite(varied[0]).all() or len(varied[0]) != len(sound):
        raise FoundError(f"variants of {sound.shape} at {rate} Hz")
    return str(found)


def _frame(found: SoundFeatures, x: np.ndarray) -> np.ndarray:
    y = x - found.preemphasis * np.concatenate([x[:1], x[:-1]])
    y = y * (0.54 - 0.46 * np.cos(2 * np.pi * np.arange(len(y)) / (len(y) - 1)))
    bins = np.arange(found.fft // 2 + 1)
    spectrum = np.exp(-2j * np.pi * np.outer(bins, np.arange(len(y))) / found.fft) @ y
    mels = 1127 * np.log(1 + bins * found.rate / found.fft / 700)
    top = 1127 * np.log(1 + found.rate / 2 / 700)
    logs = []
    for j in range(1, found.filters + 1):
        low, mid, high = (top * k / (found.filters + 1) for k in (j - 1, j, j + 1))
        rise, fall = (mels - low) / (mid - low), (high - mels) / (high - mid)
        filtered = (np.maximum(0, np.minimum(rise, fall)) * np.abs(spectrum) ** 2).sum()
        logs.append(np.log(max(filtered, found.floor)))
    if found.kind == "log-mel":
        return np.array(logs)
    cepstra = []
    for i in range(1, found.coefficients + 1):
        total = sum(m * np.cos(np.pi * i * (j + 0.5) / found.filters) for j, m in enumerate(logs))
        lifter = 1 + found.lifter / 2 * np.sin(np.pi * i / found.lifter) if found.lifter else 1
        cepstra.append(np.sqrt(2 / found.filters) * total * lifter)
    return np.array([*cepstra, np.log(max((x**2).sum(), found.floor))])


FUNCTIONS = {
    "product": product,
    "recurrence": recurrence,
    "chain": chain,
    "layers": layers,
    "operators": operators,
    "forks": forks,
    "features": features,
}

__all__ = ["FUNCTIONS", "Calls", "chain_arguments", "scan", "scan_arguments", "stages"]
