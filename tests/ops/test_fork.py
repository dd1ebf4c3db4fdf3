"""Forked processes: each computes its own numbers in its own memory, and none of them hangs."""

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import kru
from kru.ops import bindings, buffers

from .scan_cases import threads

SHAPE = (9, 1 << 20)  # 36 MiB in float32
PATIENCE = 60.0  # seconds, after which a child counts as hanging

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Newer versions of Python warn of every fork beside threads, which is what is tested.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
needs_buffers = pytest.mark.skipif(
    buffers.large(SHAPE, torch.float32) is None, reason="buffers are kept on Linux only"
)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    buffers.clear()
    yield
    buffers.clear()


class Child:
    """A forked process that runs `work(pipe)` and sends what it returns."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        fork: Any = multiprocessing.get_context("fork")
        self.pipe, there = fork.Pipe()
        self.process = fork.Process(target=lambda: there.send(work(there)))
        self.process.start()
        there.close()  # so that a child that fails ends the wait for its answer

    def receive(self, patience: float = PATIENCE) -> Any:
        assert self.pipe.poll(patience), "the child hangs"
        return self.pipe.recv()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def digest(*tensors: Tensor) -> str:
    """Equal only for tensors that are equal bit by bit."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().numpy())
    return total.hexdigest()


class Outputs(Dataset[str]):
    """Digests of all outputs, 6.25 MiB, of one layer on many inputs."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = kru.KRU(3, 256).requires_grad_(False)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> str:
        x = torch.randn(100, 64, 3, generator=torch.Generator().manual_seed(index))
        return digest(self.layer(x)[0])


def test_a_pool_computes_what_its_parent_does() -> None:
    outputs = Outputs()
    expected = [outputs[i] for i in range(len(outputs))]  # leaves a buffer that the children inherit
    assert len(set(expected)) == len(expected)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        got = pool.map_async(outputs.__getitem__, range(len(outputs)), chunksize=1).get(PATIENCE)
    assert got == expected


def test_workers_of_a_data_loader_compute_what_their_parent_does() -> None:
    outputs = Outputs()
    expected = [outputs[i] for i in range(len(outputs))]
    loader = DataLoader(
        outputs, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=PATIENCE
    )
    both = [(got, outputs[i]) for i, got in enumerate(loader)]  # the parent computes at the same time
    assert both == [(value, value) for value in expected]


@needs_buffers
@pytest.mark.parametrize("lent", [True, False], ids=["lent", "kept"])
def test_parent_and_child_write_to_their_own_memory(lent: bool) -> None:
    first = buffers.large(SHAPE, torch.float32).fill_(1.0)
    if not lent:
        del first

    def mine() -> Tensor:
        return first if lent else buffers.large(SHAPE, torch.float32).fill_(1.0)

    def work(pipe: Any) -> bool:
        tensor = mine()
        before = bool((tensor == 1.0).all())
        tensor.fill_(2.0)
        pipe.send("written")
        pipe.recv()
        return before and bool((tensor == 2.0).all())

    with Child(work) as child:
        assert child.receive() == "written"
        tensor = mine()
        assert bool((tensor == 1.0).all())
        tensor.fill_(3.0)
        child.pipe.send("written")
        assert child.receive() is True
        assert bool((tensor == 3.0).all())


@needs_buffers
def test_a_child_starts_with_nothing_kept_and_keeps_its_own() -> None:
    lent = buffers.large(SHAPE, torch.float32)
    buffers.large((2, 1 << 20), torch.float32)
    assert [len(block) >> 20 for block in buffers._free] == [8]

    def work(_: Any) -> list[list[int]]:
        nonlocal lent
        sizes = [[len(block) >> 20 for block in buffers._free]]
        del lent
        return [*sizes, [len(block) >> 20 for block in buffers._free]]

    with Child(work) as child:
        assert child.receive() == [[], [36]]
    assert [len(block) >> 20 for block in buffers._free] == [8]


@needs_buffers
def test_a_lock_that_another_thread_holds_does_not_stop_the_child() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with buffers._lock:
            held.set()
            done.wait()

    def work(_: Any) -> float:
        total = float(buffers.large(SHAPE, torch.float32).fill_(1.0)[:, 0].sum())
        buffers.clear()
        return total

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        with Child(work) as child:
            assert child.receive() == 9.0
    finally:
        done.set()
        holder.join()


def computation() -> Callable[[], str]:
    """Every entry point of the library, forward and backward: products and both recurrences.

    The tensors are too small for torch to use its own threads, with which it would hang in a child.
    """
    torch.manual_seed(0)
    x, factors = torch.randn(301, 64, requires_grad=True), [torch.randn(8, 8) for _ in range(2)]
    steps = torch.randn(6, 40, 3, requires_grad=True)
    layers = [kru.KRU(3, 64), kru.KRULSTM(3, 64), kru.baselines.EURNN(3, 64)]

    def compute() -> str:
        outputs = [(x, kru.kron_matmul(x, factors)), *((steps, layer(steps)[0]) for layer in layers)]
        gradients = [torch.autograd.grad(y, argument, torch.ones_like(y))[0] for argument, y in outputs]
        return digest(*(y for _, y in outputs), *gradients)

    return compute


@pytest.mark.skipif(bindings.library is None, reason="there are no native kernels")
@pytest.mark.parametrize("grandchild", [False, True], ids=["child", "grandchild"])
def test_several_threads_in_a_child_of_a_process_with_several_threads(grandchild: bool) -> None:
    """The parent's threads do not exist in the child, which must start its own."""
    compute = computation()

    def work(_: Any) -> list[str]:
        return [compute() for _ in range(3)]

    def work_of_a_child(_: Any) -> list[str]:
        with Child(work) as child:
            return child.receive(PATIENCE / 2)

    with threads(2):
        expected = compute()
        with Child(work_of_a_child if grandchild else work) as child:
            assert child.receive() == [expected] * 3
        assert compute() == expected
