"""What the training loop costs beside the model: batches, penalty, optimiser, metrics, at the paper's sizes.

A step of `kru.training.trainer.Trainer` is compared with the same model's forward and backward pass alone, on one
batch that is already there. Prints both times and the share of the rest; the aim is less than 10%.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kru.lab.recipes.files import load_recipe
from kru.lab.tasks import Batch, Task
from kru.lab.tasks.mnist import Mnist, MnistTask
from kru.lab.trainer import RecipeTrainer
from kru.training.metrics import Metrics

REPEATS = 15


def main() -> None:
    print(f"{torch.get_num_threads()} threads, fastest of {REPEATS} alternating pairs of steps")
    for name in ("pmnist-kru", "mnist-lstm", "copy-1000-kru", "copy-2000-kru"):
        recipe = load_recipe(name)
        task = random_digits() if isinstance(recipe.task, Mnist) else recipe.task.load()
        whole, model = measure(RecipeTrainer(recipe, task), task)
        print(
            f"{name:16} step {1e3 * whole:8.2f} ms, model {1e3 * model:8.2f} ms, "
            f"the rest {100 * (whole - model) / whole:5.1f}%"
        )


def measure(trainer: RecipeTrainer, task: Task) -> tuple[float, float]:
    """Least seconds of a step of the loop, and of the model alone."""
    batch = task.train_batches(trainer.recipe.batch_size, epoch=0, seed=1)[0]
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        trainer._metrics = Metrics(Path(folder) / "metrics.jsonl", 0)
        for _ in range(REPEATS + 2):
            pairs.append(
                (timed(lambda: trainer._step(0.0)), timed(lambda: model_alone(trainer, task, batch)))
            )
        trainer._metrics.close()
    whole, model = zip(*pairs[2:], strict=True)
    return min(whole), min(model)


def model_alone(trainer: RecipeTrainer, task: Task, batch: Batch) -> None:
    outputs, _ = trainer.model(batch.inputs)
    trainer.optimizer.zero_grad(set_to_none=True)
    task.loss(outputs, batch).backward()


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def random_digits() -> MnistTask:
    """Noise in the form of MNIST: the time of a step does not depend on what the pixels show."""
    pixels = torch.randint(0, 256, (1200, 784), dtype=torch.uint8).numpy()
    labels = torch.randint(0, 10, (1200,), dtype=torch.uint8).numpy()
    return MnistTask(Mnist("permuted"), pixels, labels, pixels[:10], labels[:10])


if __name__ == "__main__":
    main()
