"""Numbers of threads, repetition, and several Python threads at once."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import kru
from kru.ops import bindings

from .kron_cases import DTYPES
from .scan_cases import ScanCase, assert_equal, evaluate, run_scan, threads

CASES = [
    ScanCase(*cell, inputs=inputs, shapes=shapes, steps=9, batch=7, lengths="unsorted")
    for cell, inputs, shapes in (
        (("elman", "modrelu", "complex"), "small", ((2, 2),) * 6),
        (("elman", "tanh", "real"), "large", ((5, 5), (3, 3))),
        (("elman", "modrelu", "real"), "symbols", ((40, 40),)),
        (("lstm", "tanh", "real"), "small", ((2, 2),) * 5),
        (("gru", "tanh", "real"), "symbols", ((6, 6), (4, 4))),
    )
]
IDS = [f"{case.cell}-{case.field}-{case.inputs}" for case in CASES]


def product(dtype: torch.dtype, shapes: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Large enough to be shared out."""
    torch.manual_seed(0)
    factors = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    x = torch.randn(301, 64, dtype=dtype, requires_grad=True)
    y = kru.kron_matmul(x, factors)
    gradients = torch.autograd.grad(y, [x, *factors], torch.randn(y.shape, dtype=dtype))
    return {str(i): t.detach() for i, t in enumerate((y, *gradients))}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_scan_with_any_number_of_threads(case: ScanCase) -> None:
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 1e-14)):
        results = []
        for count in (1, 2, 3, 8):
            with threads(count):
                first, second = (evaluate(replace(case, dtype=dtype), run_scan) for _ in range(2))
            for name in first:
                assert torch.equal(first[name], second[name]), (count, name)
            results.append(first)
        for result in results[1:]:
            assert_equal(result, results[0], tolerance * 10, case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", [[(2, 2)] * 6, [(8, 8), (8, 8)], [(64, 64)], [(4, 16), (2, 4)]], ids=str)
def test_product_with_any_number_of_threads(shapes: list[tuple[int, int]], dtype: torch.dtype) -> None:
    single = dtype in (torch.float32, torch.complex64)
    results = []
    for count in (1, 2, 3):
        with threads(count):
            first, second = (product(dtype, shapes) for _ in range(2))
        for name in first:
            assert torch.equal(first[name], second[name]), (count, name)
        results.append(first)
    for result in results[1:]:
        for name, tensor in result.items():
            size = float(results[0][name].abs().max())
            assert (tensor - results[0][name]).abs().max() <= (1e-5 if single else 1e-13) * size, name


def test_more_threads_than_sequences() -> None:
    for batch in (0, 1, 2):
        case = ScanCase(batch=batch, lengths="equal")
        with threads(5):
            got = evaluate(case, run_scan)
        assert_equal(got, evaluate(case, run_scan), 1e-5, case)


def test_several_python_threads() -> None:
    """Each with its own case, all at once, many times: the numbers of each alone."""

    def work(index: int) -> list[dict[str, torch.Tensor]]:
        start.wait()
        return [evaluate(CASES[index], run_scan) for _ in range(6)]

    expected = [evaluate(case, run_scan) for case in CASES]
    start = threading.Barrier(len(CASES))
    with ThreadPoolExecutor(len(CASES)) as pool:
        for index, results in enumerate(pool.map(work, range(len(CASES)))):
            for result in results:
                assert_equal(result, expected[index], 2e-5, CASES[index])


def test_several_python_threads_on_the_same_tensors() -> None:
    torch.manual_seed(0)
    x, factors = torch.randn(40, 64), [torch.randn(2, 2) for _ in range(6)]
    expected = kru.kron_matmul(x, factors)
    with threads(2), ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: kru.kron_matmul(x, factors), range(200)):
            assert torch.equal(y, expected)


THREADS_AND_TIME = """
import os, time, torch, kru
torch.set_num_threads(3)
x, factors = torch.randn(2000, 64), [torch.randn(2, 2) for _ in range(6)]
kru.kron_matmul(x, factors)
count = len(os.listdir("/proc/self/task"))
for _ in range(50):
    kru.kron_matmul(x, factors)
assert len(os.listdir("/proc/self/task")) == count
time.sleep(0.05)
before = time.process_time()
time.sleep(0.5)
print(count, time.process_time() - before)
"""


@pytest.mark.skipif(bindings.library is None, reason="there are no native kernels")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_threads_start_once_and_sleep_without_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS_AND_TIME], capture_output=True, text=True, timeout=100, check=True
    )
    count, seconds = done.stdout.split()
    assert int(count) >= 3
    assert float(seconds) < 0.1
