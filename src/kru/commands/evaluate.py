"""`kru evaluate WEIGHTS`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kru.cli import parse
from kru.report.inspect import weights_path
from kru.training.evaluate import evaluate
from kru.training.result import read_weights


@dataclass(frozen=True)
class Options:
    """Measure trained weights."""

    weights: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    """weights such as results/weights/jsb-kru-seed1, or the folder of a run"""
    split: Literal["test", "valid", "train"] = "test"
    """the data to measure on"""
    sequences: int = 0
    """about how many sequences to use; 0: all"""
    batch_size: int = 0
    """sequences at once; 0: as the recipe has it"""
    data_dir: Path | None = None
    """the data directory; else KRU_DATA, else the user's cache"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "evaluate", arguments)
    for name, number in (("sequences", options.sequences), ("batch-size", options.batch_size)):
        if number < 0:
            raise ValueError(f"{name}: expected at least 0, got {number}")
    recipe, model = read_weights(weights_path(options.weights))
    task = recipe.task.load(options.data_dir)
    batch_size = options.batch_size or recipe.evaluation.batch_size
    value = evaluate(model, task, options.split, batch_size, sequences=options.sequences)
    print(f"{recipe.name} seed {recipe.seed}: {task.measure.name} {value:.6g} on {options.split}")
    return 0
