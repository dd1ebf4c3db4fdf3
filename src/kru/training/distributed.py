"""Data-parallel training: several processes, each with its columns of every batch, train like one process.

``torchrun --nproc-per-node N -m kru train RECIPE`` starts them. A batch of B sequences is cut into N parts of
neighbouring columns. Losses are means, and parts have different numbers of targets, so the loss of the whole is

    L = sum_r n_r L_r / n,    n = sum_r n_r,

with L_r the mean over the n_r targets of part r. Every process differentiates n_r / n L_r, an Nth of the penalty
is added, and the sum of these gradients over the processes, one reduction a step, is the gradient of the whole:
the same steps as of one process, to rounding. Weights and optimisers stay equal because they begin equal and see
equal gradients.

The first process keeps the time, reads and writes the folder of the run, and broadcasts what it read.
"""

import contextlib
import importlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from kru.nn.states import State
from kru.training.counter import derive_key
from kru.training.task import Batch, Score, Task

PATIENCE = timedelta(minutes=10)
"""How long a process waits for the others before it gives up, such as for one that validates or writes."""

_DROPOUT = 0x64726F706F7574


class Share(NamedTuple):
    """What a process has of a batch: its columns, None if there is no target in them, and n_r / n."""

    batch: Batch | None
    weight: float


class Processes:
    """The processes of a run; on its own, one.

    Args:
        rank, count: this process's number, and how many there are.
        device: where this process computes.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank = rank
        self.count = count
        self.device = torch.device(device)

    @property
    def is_first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def columns(self, batch_size: int, rank: int | None = None) -> slice:
        """The columns of a process, this one or another; as many as the others have, or one more or less.

        >>> [Processes(rank, 3).columns(5) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
        """
        rank = self.rank if rank is None else rank
        return slice(-(-rank * batch_size // self.count), -(-(rank + 1) * batch_size // self.count))

    def share(self, batch: Batch, task: Task) -> Share:
        """This process's part of a batch, on its device."""
        if self.count == 1:
            return Share(batch.to(self.device), 1.0)
        columns = self.columns(batch.inputs.shape[1])
        if columns.start == columns.stop:
            return Share(None, 0.0)
        part = batch.part(columns, last_only=task.last_only)
        counted = task.count(part)
        # Without a target, such as when only the longest streams of a text continue, the mean would be NaN.
        return Share(part.to(self.device), counted / task.count(batch)) if counted else Share(None, 0.0)

    def sum_gradients(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> float:
        """Give all processes the sums of their gradients and of `loss`, which is returned."""
        if self.count == 1:
            return loss.item()
        trained = [p for p in parameters if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), loss.detach().reshape(1)])
        distributed.all_reduce(flat)
        sums = torch.split_with_sizes(flat[:-1], [p.numel() for p in trained])
        for parameter, summed in zip(trained, sums, strict=True):
            parameter.grad = summed.view_as(parameter)
        return flat[-1].item()

    def total(self, score: Score) -> Score:
        """The sum of the scores of all processes."""
        if self.count == 1:
            return score
        both = torch.tensor([score.total, score.count], dtype=torch.float64, device=self.device)
        distributed.all_reduce(both)
        return Score(both[0].item(), int(both[1].item()))

    def first(self, value: float) -> float:
        """The value that the first process gives."""
        if self.count == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        distributed.broadcast(shared, 0)
        return shared.item()

    def largest(self, value: int) -> int:
        """The largest of the values that processes give."""
        if self.count == 1:
            return value
        shared = torch.tensor(value, device=self.device)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX)
        return int(shared.item())

    def bytes_of_first(self, data: bytes) -> bytes:
        """The bytes that the first process gives."""
        length = int(self.first(len(data)))
        if self.count == 1 or length == 0:
            return data if self.is_first else b""
        shared = torch.zeros(length, dtype=torch.uint8, device=self.device)
        if self.is_first:
            shared.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        distributed.broadcast(shared, 0)
        return shared.cpu().numpy().tobytes()

    def weights_of_first(self, model: nn.Module) -> None:
        """Give a model everywhere the weights that it has in the first process."""
        if self.count > 1:
            for tensor in model.state_dict().values():
                distributed.broadcast(tensor, 0)

    def own_columns(self, state: State | None) -> State | None:
        """This process's columns of the state (rows, B, S) of a whole batch."""
        if state is None:
            return None
        if isinstance(state, tuple):
            return tuple(self._own_columns(part) for part in state)
        return self._own_columns(state)

    def _own_columns(self, state: Tensor) -> Tensor:
        return state[:, self.columns(state.shape[1])].contiguous().to(self.device)

    def all_columns(self, state: State | None, batch_size: int) -> State | None:
        """The inverse of `own_columns`, in every process; each has a column at least."""
        if self.count == 1 or state is None:
            return state
        if isinstance(state, tuple):
            return tuple(self._all_columns(part, batch_size) for part in state)
        return self._all_columns(state, batch_size)

    def _all_columns(self, state: Tensor, batch_size: int) -> Tensor:
        parts = []
        for rank in range(self.count):
            columns = self.columns(batch_size, rank)
            shape = (state.shape[0], columns.stop - columns.start, state.shape[2])
            part = state.contiguous() if rank == self.rank else state.new_empty(shape)
            distributed.broadcast(part, rank)
            parts.append(part)
        return torch.cat(parts, dim=1)

    def own_chance(self, seed: int, step: int) -> None:
        """Let each process draw its own random numbers in a step, the same when the step is taken again."""
        if self.count > 1:
            torch.manual_seed(derive_key(_DROPOUT, seed, step, self.rank))


@contextlib.contextmanager
def joined(device: str = "cpu") -> Iterator[Processes]:
    """The processes that torchrun started, for as long as the context lasts; without torchrun, one.

    They talk by gloo, or, with `device` "cuda", by NCCL, each with the graphics card of its number on its host.
    """
    kind = torch.device(device).type
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: expected one that is here, got cuda without a usable graphics card")
    if not distributed.is_torchelastic_launched():
        yield Processes(device=device)
        return
    if kind == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    # Functions of this module have the group that is there when it is imported as a default, and torch imports it with
    # the first optimiser: the group's threads would outlive `destroy_process_group` and abort the ending interpreter.
    importlib.import_module("torch.distributed.nn.functional")
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    # Not the store itself: torchrun keeps it over restarts, with the addresses of processes that are gone.
    fresh = PrefixStore(agree_on_name(store, rank, count), store)
    backend = "nccl" if kind == "cuda" else "gloo"
    distributed.init_process_group(backend, store=fresh, rank=rank, world_size=count, timeout=PATIENCE)
    try:
        yield Processes(rank, count, device)
    finally:
        distributed.destroy_process_group()


def agree_on_name(store: Store, rank: int, count: int) -> str:
    """A name that the processes of one start agree on and that no earlier start has used.

    What is in the store may be left over from processes that are gone, and not all of those have come as far as
    this. So each process writes a number that nobody else has. The first one offers the list of all that it
    reads, again and again; the others accept a list with their own number; and the list that all have accepted
    is confirmed, under its own name, where nothing can be left over. A list with an old number is never accepted
    by the process whose new number is missing.
    """
    own = secrets.token_hex(8)
    store.set(f"kru/{rank}/here", own)
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        if rank == 0:
            store.set("kru/offer", "-".join(store.get(f"kru/{r}/here").decode() for r in range(count)))
        offer = store.get("kru/offer").decode()
        numbers = offer.split("-")
        if len(numbers) == count and numbers[rank] == own:
            store.set(f"kru/{rank}/accepted", offer)
            if rank == 0 and all(store.get(f"kru/{r}/accepted").decode() == offer for r in range(count)):
                store.set(f"kru/confirmed/{offer}", "yes")
            if store.check([f"kru/confirmed/{offer}"]):
                return f"kru/{offer}"
        time.sleep(0.02)
    raise RuntimeError(f"process {rank} of {count} waited in vain for the others")
