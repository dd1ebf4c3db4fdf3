"""The paper's problems: data in, batches and a loss out.

Settings such as `CopyMemory(T=1000)` have a `load`, which gives the `Task` that a training loop uses:

>>> from kru.tasks import CopyMemory
>>> task = CopyMemory(T=100).load()
>>> batches = task.train_batches(20, epoch=0, seed=1)
>>> len(batches), tuple(batches[4999].inputs.shape)
(5000, (120, 20))
"""

from kru.tasks.adding import Adding
from kru.tasks.base import IGNORED, Batch, Batches, Measure, Problem, Score, Split, Task
from kru.tasks.copy_memory import CopyMemory
from kru.tasks.mnist import Mnist
from kru.tasks.music import Music
from kru.tasks.penn_treebank import PennTreebank
from kru.tasks.timit import Timit

__all__ = [
    "IGNORED",
    "Adding",
    "Batch",
    "Batches",
    "CopyMemory",
    "Measure",
    "Mnist",
    "Music",
    "PennTreebank",
    "Problem",
    "Score",
    "Split",
    "Task",
    "Timit",
]
