"""`kru compress RUN`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from kru.lab.cli import parse
from kru.lab.commands.train import summary
from kru.lab.compressed import CompressedRun, compress_run, fine_tuning
from kru.lab.result import read_weights, write_weights
from kru.lab.run import RunError, RunOptions, train, weights_path
from kru.training.evaluate import evaluate
from kru.training.files import expect_folder
from kru.training.folder import CHECKPOINT, WEIGHTS
from kru.training.interrupt import Interrupted


@dataclass(frozen=True)
class Options:
    """Replace the recurrent matrices of a trained model by the nearest sums of Kronecker products.

    The compressed weights are evaluated, written, and optionally fine-tuned.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """folder of a run such as runs/jsb-lstm-seed1, or weights such as results/music/jsb-kru-seed1"""
    max_parameters: int = 0
    """maximum number of recurrent parameters; chooses two factors and the number of terms"""
    factors: tuple[int, ...] = ()
    """sizes of the factors, instead of --max-parameters"""
    rank: int = 0
    """number of terms; 0: as many as --max-parameters allows, or one with --factors"""
    batches: int = 20
    """training batches whose states the matrices are fitted to; 0: fit the matrices themselves"""
    fine_tune: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """fine-tune the compressed model"""
    epochs: int = 10
    """epochs of fine-tuning"""
    steps: int = 0
    """steps of fine-tuning; 0: use --epochs"""
    rate: float = 0.5
    """initial learning rate of fine-tuning, as a fraction of the recipe's; it falls to zero"""
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""
    out: Path | None = None
    """folder of the compressed weights and of the fine-tuning run; default: runs/RECIPE-compressed-seedN"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """do not show progress"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "compress", arguments)
    _expect(options)
    source = weights_path(options.run)
    recipe, model = read_weights(source)
    name = f"{recipe.name}-compressed"
    folder = options.out or Path("runs") / f"{name}-seed{recipe.seed}"
    expect_folder(folder)
    _expect_unused(folder, source, fine_tune=options.fine_tune)
    task = recipe.task.load(options.data_dir)
    compressed = compress_run(
        recipe,
        model,
        task,
        max_parameters=options.max_parameters or None,
        factors=options.factors or None,
        rank=options.rank or None,
        batches=options.batches,
    )
    recipe = replace(compressed.recipe, name=name)
    print(f"{compressed.report}\n", flush=True)
    for label, measured in (("before", model), ("compressed", compressed.model)):
        value = evaluate(measured, task, "test", recipe.evaluation.batch_size)
        print(f"{label}: {task.measure.name} {value:.6g} on test", flush=True)
    if not options.fine_tune:
        write_weights(folder / WEIGHTS, compressed.model.state_dict(), recipe)
        print(f"weights: {folder / WEIGHTS}")
        return 0
    return _fine_tune(options, replace(compressed, recipe=recipe), folder, arguments)


def _fine_tune(options: Options, compressed: CompressedRun, folder: Path, arguments: Sequence[str]) -> int:
    budget = {"steps": options.steps} if options.steps else {"epochs": options.epochs}
    recipe = fine_tuning(compressed.recipe, options.rate, **budget)
    run_options = RunOptions(folder, options.data_dir, quiet=options.quiet)
    command = shlex.join(["kru compress", *arguments]).replace("'kru compress'", "kru compress")
    try:
        result: dict[str, Any] = train(
            recipe, "", run_options, start=compressed.model.state_dict(), command=command
        )
    except Interrupted as stop:
        print(
            f"kru compress: stopped with a checkpoint in {folder}; run the same command to resume",
            file=sys.stderr,
        )
        return 128 + stop.signal
    except RunError as error:
        print(f"kru compress: {error}", file=sys.stderr)
        return 1
    print(f"fine-tuned: {summary(result)}")
    return 0


def _expect_unused(folder: Path, source: Path, *, fine_tune: bool) -> None:
    """Raise if the compressed weights would replace the original weights or the weights of a run."""
    weights = folder / WEIGHTS
    if weights.exists() and weights.samefile(source):
        raise ValueError(
            f"out: expected a folder other than the folder of the weights to compress, got {folder}"
        )
    # Fine-tuning resumes its own run there, and refuses any other.
    if not fine_tune and (folder / CHECKPOINT).exists():
        raise ValueError(f"out: expected a folder without a run, got {folder}, which has {CHECKPOINT}")


def _expect(options: Options) -> None:
    for name in ("max_parameters", "rank", "batches", "steps"):
        if getattr(options, name) < 0:
            raise ValueError(f"{name.replace('_', '-')}: expected at least 0, got {getattr(options, name)}")
    if bool(options.max_parameters) == bool(options.factors):
        given = "both" if options.factors else "neither"
        raise ValueError(f"max-parameters, factors: expected one of them, got {given}")
    if options.epochs < 1:
        raise ValueError(f"epochs: expected at least 1, got {options.epochs}")
    if not options.rate > 0:
        raise ValueError(f"rate: expected above 0, got {options.rate}")
