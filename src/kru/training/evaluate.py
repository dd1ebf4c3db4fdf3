"""The measure of a model on a split."""

from collections.abc import Callable

import torch
from torch import nn

from kru.nn.states import State
from kru.training.distributed import Processes
from kru.training.task import Score, Split, Task


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    batch_size: int,
    *,
    sequences: int = 0,
    between: Callable[[], None] = lambda: None,
    processes: Processes | None = None,
) -> float:
    """The task's measure over a split.

    Args:
        batch_size: sequences at once (of a text: streams).
        sequences: about how many sequences (of a text: characters) to use; 0 for all.
        between: called before each batch; it may raise to stop.
        processes: those that share the work, each with its columns of every batch; all have to call this.
    """
    size = task.size(split)
    batches = task.eval_batches(split, min(batch_size, size))
    count = len(batches)
    if sequences:
        count = min(count, -(-count * sequences // size))
    processes = processes or Processes()
    score = Score()
    state: State | None = None
    model.eval()
    with torch.inference_mode():
        for index in range(count):
            between()
            batch, _ = processes.share(batches[index], task)
            if batch is None:
                continue
            outputs, state = model(batch.inputs, state if batch.carry else None, batch.lengths)
            score += task.score(outputs, batch)
    model.train()
    return processes.total(score).value
