"""`kru reproduce TARGET`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from kru.lab.cli import parse
from kru.lab.commands.train import summary
from kru.lab.recipes.files import command_line
from kru.lab.recipes.settings import Recipe
from kru.lab.recorded import record, record_path
from kru.lab.report.figures import WALL_CLOCK, draw_figures
from kru.lab.report.records import read_results
from kru.lab.report.tables import make_tables
from kru.lab.report.targets import target_recipes
from kru.lab.result import read_result
from kru.lab.run import DivergedRunError, RunError, RunOptions, train
from kru.training.folder import RESULT
from kru.training.interrupt import Interrupted
from kru.training.settings import BUDGET


@dataclass(frozen=True)
class Options:
    """Run all recipes of a table or figure of the paper, then print its table and draw its figure.

    Recorded runs are skipped and interrupted runs are resumed, so the same command can be repeated until
    everything is done.
    """

    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """copy, adding, mnist, ptb, music, timit or wall-clock"""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """small version that takes minutes: shorter sequences or fewer steps, the same for all models"""
    seeds: tuple[int, ...] = (1,)
    """seeds to run"""
    results: Path | None = None
    """folder to record results in; default: results (wall-clock: results/wall-clock; --quick: runs/quick/results)"""
    out: Path | None = None
    """folder of the runs; default: runs (--quick: runs/quick). Use another folder for another corpus"""
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "reproduce", arguments)
    # Times can only be compared within one run, so the wall-clock figure never uses other records.
    apart = WALL_CLOCK if options.target == WALL_CLOCK and not options.quick else ""
    base = options.out or (Path("runs/quick") if options.quick else Path("runs", apart))
    results = options.results or (base / "results" if options.quick else Path("results", apart))
    recipes = [
        replace(recipe, seed=seed)
        for recipe in target_recipes(options.target, quick=options.quick)
        for seed in options.seeds
    ]
    for recipe in recipes:
        _expect_own(recipe, record_path(results, recipe))
    failed = []
    for recipe in recipes:
        name = f"{recipe.name}-seed{recipe.seed}"
        if record_path(results, recipe).exists():
            print(f"{name}: already recorded in {results}", file=sys.stderr)
            continue
        try:
            _run(recipe, RunOptions(base / name, options.data_dir, results=results))
        except Interrupted as stop:
            print(
                f"kru reproduce: stopped in {name}, with a checkpoint; run the same command to resume",
                file=sys.stderr,
            )
            return 128 + stop.signal
        except RunError as error:
            print(f"kru reproduce: {name}: {error}", file=sys.stderr)
            failed.append(name)
    if not results.is_dir():
        raise RunError(f"no run of {options.target} was recorded")
    target = "music" if options.target == WALL_CLOCK else options.target
    recorded = read_results(results)
    print("\n\n".join(table.plain() for table in make_tables(recorded, [target]) if table.runs))
    for path in draw_figures(recorded, results / "figures", [options.target]):
        print(f"figure: {path}")
    return 1 if failed else 0


def _expect_own(recipe: Recipe, path: Path) -> None:
    """Raise if a result is recorded there that is not one of this recipe, with its settings and its whole budget."""
    if not path.exists():
        return
    result = read_result(path)
    command = command_line(recipe, recipe.name)
    advice = "remove it, or choose another --results"
    if result["command"] != command:
        raise ValueError(
            f"{path}: expected the result of `{command}`, got that of `{result['command']}`; {advice}"
        )
    spent = {
        "steps": result["steps"],
        "epochs": result.get("epochs", 0),
        "minutes": result["wall_seconds"] / 60,
    }
    bounds = {bound: getattr(recipe, bound) for bound in BUDGET if getattr(recipe, bound)}
    # The result has the seconds rounded.
    if result["stopped"] == "budget" and not any(
        spent[name] >= bound - 0.001 for name, bound in bounds.items()
    ):
        budget = " or ".join(f"{bound:,} {name}" for name, bound in bounds.items())
        raise ValueError(
            f"{path}: expected a run of {budget}, got one of {result['steps']:,} steps; {advice}"
        )


def _run(recipe: Recipe, run_options: RunOptions) -> None:
    """Train and record; of a run that diverged, what it had reached."""
    try:
        result = train(recipe, recipe.name, run_options)
    except DivergedRunError:
        record(recipe, read_result(run_options.folder / RESULT), run_options.folder, run_options.results)
        raise
    record(recipe, result, run_options.folder, run_options.results)
    print(summary(result), file=sys.stderr)
