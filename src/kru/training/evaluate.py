"""The measure of a model on a split."""

from collections.abc import Callable

import torch

from kru.nn.states import State
from kru.tasks import Score, Split, Task
from kru.training.model import Model


def evaluate(
    model: Model,
    task: Task,
    split: Split,
    batch_size: int,
    *,
    sequences: int = 0,
    between: Callable[[], None] = lambda: None,
) -> float:
    """The task's measure over a split.

    Args:
        batch_size: sequences at once (of a text: streams).
        sequences: about how many sequences (of a text: characters) to use; 0 for all.
        between: called before each batch; it may raise to stop.
    """
    size = task.size(split)
    batches = task.eval_batches(split, min(batch_size, size))
    count = len(batches)
    if sequences:
        count = min(count, -(-count * sequences // size))
    score = Score()
    state: State | None = None
    model.eval()
    with torch.inference_mode():
        for index in range(count):
            between()
            batch = batches[index]
            outputs, state = model(batch.inputs, state if batch.carry else None)
            score += task.score(outputs, batch)
    model.train()
    return score.value
