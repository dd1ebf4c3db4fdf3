"""The paper's problems: data in, batches and a loss out.

Settings such as `CopyMemory(T=1000)` have a `load`, which gives the `Task` that a training loop uses:

>>> from kru.lab.tasks import CopyMemory
>>> task = CopyMemory(T=100).load()
>>> batches = task.train_batches(20, epoch=0, seed=1)
>>> len(batches), tuple(batches[4999].inputs.shape)
(5000, (120, 20))
"""

from kru.lab.tasks.adding import Adding
from kru.lab.tasks.copy_memory import CopyMemory
from kru.lab.tasks.mnist import Mnist
from kru.lab.tasks.music import Music
from kru.lab.tasks.penn_treebank import PennTreebank
from kru.lab.tasks.timit import Timit
from kru.lab.tasks.tracking import Tracking
from kru.training.task import IGNORED, Batch, Batches, Measure, Problem, Score, Split, Task

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
    "Tracking",
]
