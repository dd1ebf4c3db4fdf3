"""`kru evaluate WEIGHTS`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kru.lab.cli import parse
from kru.lab.result import read_weights
from kru.lab.run import weights_path
from kru.training.evaluate import evaluate
from kru.training.task import Problem


@dataclass(frozen=True)
class Options:
    """Measure trained weights."""

    weights: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    """weights such as results/weights/jsb-kru-seed1, or the folder of a run"""
    split: Literal["test", "valid", "train"] = "test"
    """the data to measure on"""
    length: int = 0
    """T of copy memory or adding, to see how weights do with sequences that they were not trained on; 0: as the
    recipe has it"""
    sequences: int = 0
    """about how many sequences to use; 0: all"""
    batch_size: int = 0
    """sequences at once; 0: as the recipe has it"""
    data_dir: Path | None = None
    """the data directory; else KRU_DATA, else the user's cache"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "evaluate", arguments)
    for name in ("length", "sequences", "batch_size"):
        if getattr(options, name) < 0:
            raise ValueError(f"{name.replace('_', '-')}: expected at least 0, got {getattr(options, name)}")
    recipe, model = read_weights(weights_path(options.weights))
    task = _with_length(recipe.task, options.length).load(options.data_dir)
    batch_size = options.batch_size or recipe.evaluation.batch_size
    value = evaluate(model, task, options.split, batch_size, sequences=options.sequences)
    longer = f" with T = {options.length}" if options.length else ""
    print(f"{recipe.name} seed {recipe.seed}: {task.measure.name} {value:.6g} on {options.split}{longer}")
    return 0


def _with_length(problem: Problem, length: int) -> Problem:
    if not length:
        return problem
    with_length: Callable[[int], Problem] | None = getattr(problem, "with_length", None)
    if with_length is None:
        raise ValueError(
            "length: expected weights of a task whose length can be chosen, such as copy memory or adding, got "
            f"those of {problem.label}"
        )
    return with_length(length)
