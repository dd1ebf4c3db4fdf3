"""`kru train RECIPE`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from kru.lab.commands.recipe_options import RECIPE_HELP, parse_with_recipe
from kru.lab.recipes.settings import Recipe
from kru.lab.result import write_result
from kru.lab.run import RunError, RunOptions, train
from kru.training.distributed import joined
from kru.training.files import write_atomically
from kru.training.folder import WEIGHTS
from kru.training.interrupt import Interrupted

DESCRIPTION = f"""Train a model by a recipe: kru train RECIPE [OPTIONS]

{RECIPE_HELP} Where the run's folder has a checkpoint, the run goes on from it: after Ctrl-C, a crash or
kill -9 the same command is enough. Started by torchrun (torchrun --nproc-per-node 2 -m kru train RECIPE), several
processes share every batch."""


@dataclass(frozen=True)
class Options:
    """What `kru train` takes after the name of the recipe."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    data_dir: Path | None = None
    """the data directory; else KRU_DATA, else the user's cache"""
    out: Path | None = None
    """folder of the run; else runs/RECIPE-seedN"""
    results: Path | None = None
    """folder in which to record RECIPE-seedN.json and weights/RECIPE-seedN.safetensors; where not given, nothing is
    recorded, and recipes that begin with recorded weights look for them in the folder results"""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """insist that there is a checkpoint to go on from"""
    checkpoint_seconds: float = 30.0
    """time between two checkpoints"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """show no progress"""
    tensorboard: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """write events for TensorBoard as well"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where to compute; the fast kernels are for the CPU"""


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
            message = f"stopped with a checkpoint in {folder}; the same command goes on"
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
        record(result, folder, options.results)
    print(summary(result))
    return 0


def record(result: dict[str, Any], folder: Path, results: Path) -> None:
    """Put a result and its weights where `kru results` and `kru evaluate` read them."""
    name = f"{result['recipe']}-seed{result['seed']}"
    write_atomically(results / "weights" / f"{name}.safetensors", (folder / WEIGHTS).read_bytes())
    write_result(results / f"{name}.json", result)


def summary(result: dict[str, Any]) -> str:
    """A result in one line."""
    count = result["parameters"]
    return (
        f"{result['recipe']} seed {result['seed']}: {result['measure']} {result['test']:.4g} on test, "
        f"{result['valid']:.4g} on validation (step {result['best_step']:,} of {result['steps']:,}); "
        f"{count['total']:,} parameters, {count['recurrent']:,} recurrent; {result['wall_seconds']:,.0f} s"
    )
