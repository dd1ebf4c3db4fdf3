"""`kru evaluate WEIGHTS` and `kru evaluate MODEL DATA`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kru.lab.cli import parse
from kru.lab.commands.own_data import estimator_path, load_estimator, score_line
from kru.lab.result import read_weights
from kru.lab.run import weights_path
from kru.training.evaluate import evaluate
from kru.training.task import Problem


@dataclass(frozen=True)
class Options:
    """Evaluate trained weights on their task, or a model written by `kru fit` on a file."""

    weights: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    """a model that `kru fit` wrote, weights such as results/music/jsb-kru-seed1, or the folder of a run"""
    data: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """for a model that `kru fit` wrote: the data to measure on"""
    split: Literal["test", "valid", "train"] = "test"
    """the split to evaluate on"""
    length: int = 0
    """sequence length T for copy memory or adding, other than in training; 0: the length in the recipe"""
    sequences: int = 0
    """approximate number of sequences to use; 0: all"""
    batch_size: int = 0
    """batch size; 0: the batch size in the recipe"""
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "evaluate", arguments)
    for name in ("length", "sequences", "batch_size"):
        if getattr(options, name) < 0:
            raise ValueError(f"{name.replace('_', '-')}: expected at least 0, got {getattr(options, name)}")
    if estimator_path(options.weights) is not None:
        if options.data is None:
            raise ValueError("data: expected a file to measure the model on, got none")
        print(score_line(load_estimator(options.weights), options.data))
        return 0
    if options.data is not None:
        raise ValueError(f"data: expected none for weights of the laboratory, got {options.data}")
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
