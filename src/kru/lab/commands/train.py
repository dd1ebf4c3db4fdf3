"""`kru train RECIPE`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from kru.lab.commands.recipe_options import RECIPE_HELP, parse_with_recipe
from kru.lab.recipes.settings import Recipe
from kru.lab.recorded import record
from kru.lab.run import RunError, RunOptions, train
from kru.training.distributed import joined
from kru.training.interrupt import Interrupted

DESCRIPTION = f"""Train a model from a recipe: kru train RECIPE [OPTIONS]

{RECIPE_HELP}

If the folder of the run has a checkpoint, training resumes from it: after Ctrl-C, a crash or kill -9, run the same
command again. With torchrun (torchrun --nproc-per-node 2 -m kru train RECIPE), several processes share every batch."""


@dataclass(frozen=True)
class Options:
    """Options of `kru train`, after the name of the recipe."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""
    out: Path | None = None
    """folder of the run; default: runs/RECIPE-seedN"""
    results: Path | None = None
    """folder to record TASK/RECIPE-seedN.json and the weights in; default: nothing is recorded. Recipes that start
    from recorded weights look for them there, by default in results"""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """fail if there is no checkpoint to resume from"""
    checkpoint_seconds: float = 30.0
    """seconds between checkpoints"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """do not show progress"""
    tensorboard: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """also write TensorBoard events"""
    device: Literal["cpu", "cuda"] = "cpu"
    """device: cpu, or cuda for an NVIDIA or AMD GPU"""


def run(arguments: Sequence[str]) -> int:
    source, options = parse_with_recipe(Options, "train", arguments, DESCRIPTION)
    recipe: Recipe = options.recipe
    folder = options.out or Path("runs") / f"{recipe.name}-seed{recipe.seed}"
    run_options = RunOptions(
        folder,
        options.data_dir,
        options.checkpoint_seconds,
        options.quiet,
        options.tensorboard,
        results=options.results or Path("results"),
    )
    with joined(options.device) as processes:
        try:
            result = train(recipe, source, run_options, resume=options.resume, processes=processes)
        except Interrupted as stop:
            message = f"stopped with a checkpoint in {folder}; run the same command to resume"
            code = 128 + stop.signal
        except RunError as error:
            message, code = str(error), 1
        else:
            message, code = "", 0
    if not processes.is_first:
        return code
    if code:
        print(f"kru train: {message}", file=sys.stderr)
        return code
    if options.results is not None:
        record(recipe, result, folder, options.results)
    print(summary(result))
    return 0


def summary(result: dict[str, Any]) -> str:
    """A result in one line."""
    count = result["parameters"]
    return (
        f"{result['recipe']} seed {result['seed']}: {result['measure']} {result['test']:.4g} on test, "
        f"{result['valid']:.4g} on validation (step {result['best_step']:,} of {result['steps']:,}); "
        f"{count['total']:,} parameters, {count['recurrent']:,} recurrent; {result['wall_seconds']:,.0f} s"
    )
