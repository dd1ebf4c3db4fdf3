"""`kru sweep RECIPE`."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from kru.lab.cli import IMPORTED
from kru.lab.commands.recipe_options import RECIPE_HELP, parse_with_recipe
from kru.lab.recipes.settings import Recipe
from kru.lab.run import RunOptions
from kru.training.interrupt import Interrupted
from kru.training.settings import expect_budget

if TYPE_CHECKING:
    from kru.lab.sweep.storage import Store

DESCRIPTION = f"""Search for good settings: kru sweep RECIPE --space SPACE.toml [OPTIONS]

{RECIPE_HELP}
SPACE.toml lists the settings to vary, for example: optimizer.lr = {{low = 1e-4, high = 1e-2, log = true}}

The same command resumes after Ctrl-C, a crash or kill -9. On other machines, with the same --name and
--storage, it adds workers. --show prints the best trials so far, also while workers run."""


@dataclass(frozen=True)
class Options:
    """Options of `kru sweep`, after the name of the recipe."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    space: Path | None = None
    """TOML file with the fields to vary and their ranges or choices"""
    trials: int = 0
    """total number of trials; 0: every point of a grid, or 20 with tpe"""
    workers: int = 1
    """processes on this machine"""
    sampler: Literal["tpe", "grid"] = "tpe"
    """tpe: choose settings from the results of earlier trials; grid: every combination"""
    startup: int = 10
    """random trials before TPE starts to choose"""
    prune: bool = True
    """stop a trial early if its validation measure is worse than the median of the others"""
    name: Annotated[str, tyro.conf.arg(aliases=["--study"])] = ""
    """name by which workers join the sweep; default: the name of the recipe"""
    storage: str = ""
    """FILE.db, FILE.journal or postgresql+psycopg://USER@HOST/DATABASE; default: KRU_STORAGE, else a file in the
    folder of the runs"""
    out: Path | None = None
    """folder of the runs; default: runs/sweeps/NAME"""
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""
    checkpoint_seconds: float = 30.0
    """seconds between checkpoints of a run"""
    show: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """only print the best trials and draw the figures"""
    best: int = 10
    """number of trials to show"""
    parent: int = 0
    """id of the process that prints the trials; this process ends with it (used internally)"""

    def __post_init__(self) -> None:
        for name, least in (("trials", 0), ("workers", 1), ("startup", 0), ("best", 1), ("parent", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        if Path(self.name).name != self.name or self.name == "..":
            raise ValueError(f"name: expected a name that can also name a folder, got {self.name!r}")


def run(arguments: Sequence[str]) -> int:
    options: Options
    source, options = parse_with_recipe(Options, "sweep", arguments, DESCRIPTION)
    try:
        import optuna
    except ImportError:
        raise ValueError("sweep: optuna is not installed; run pip install 'kru[sweep]'") from None
    # What it has to say is in our own lines.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return _show(options) if options.show else _sweep(options, source, arguments)


def _sweep(options: Options, source: str, arguments: Sequence[str]) -> int:
    from kru.lab.sweep.crew import run_crew
    from kru.lab.sweep.space import load_space
    from kru.lab.sweep.sweep import Plan, Settings, join
    from kru.lab.sweep.worker import Stop, work

    if options.space is None:
        raise ValueError("space: expected --space SPACE.toml with the fields to vary")
    expect_budget(options.recipe)
    space = load_space(options.space, options.recipe)
    measure = options.recipe.task.load(options.data_dir).measure
    settings = Settings(options.recipe, source, space, options.sampler, measure)
    plan = Plan(options.trials, options.startup, options.prune)
    run_options = RunOptions(_folder(options), options.data_dir, options.checkpoint_seconds, quiet=True)
    store = _store(options)
    try:
        with join(_name(options), settings, plan, store) as sweep:
            if options.workers == 1:
                work(sweep, run_options, Stop(options.parent))
        if options.workers > 1:
            imports = [f"--import={module}" for module in IMPORTED]
            code = run_crew(["sweep", *_without_storage(arguments), *imports], options.workers, store.where)
            if code:
                return code
    except Interrupted as stop:
        if not options.parent:
            print("kru sweep: stopped; run the same command to resume", file=sys.stderr)
        return 128 + stop.signal
    return 0 if options.parent else _show(options)


def _without_storage(arguments: Sequence[str]) -> list[str]:
    """The arguments but for --storage.

    >>> _without_storage(["copy", "--storage", "x.journal", "--storage=y.journal", "--best", "3"])
    ['copy', '--best', '3']
    """
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--storage":
            next(rest, None)
        elif not argument.startswith("--storage="):
            kept.append(argument)
    return kept


def _show(options: Options) -> int:
    from kru.lab.sweep.show import draw_findings, read_findings, summary
    from kru.lab.sweep.sweep import look_at

    store = _store(options)
    try:
        with look_at(_name(options), store) as study:
            findings = read_findings(study)
        text = summary(findings, options.best)
    except (LookupError, TypeError, AttributeError, AssertionError) as error:
        # What optuna and the lines above raise depends on which line of a journal is damaged, and how.
        raise ValueError(
            f"storage {store}: expected a sweep, got damaged contents ({type(error).__name__}: {error})"
        ) from error
    print(text)
    if options.show:
        for path in draw_findings(findings, _folder(options) / "figures"):
            print(f"figure: {path}")
    return 0


def _name(options: Options) -> str:
    return options.name or options.recipe.name


def _folder(options: Options) -> Path:
    return options.out or Path("runs/sweeps") / _name(options)


def _store(options: Options) -> "Store":
    """The storage that was named; else the file in the folder, SQLite if one worker starts the sweep."""
    from kru.lab.sweep.storage import VARIABLE, Store

    if named := options.storage or os.environ.get(VARIABLE):
        store = Store(named)
    else:
        single, several = (Store(str(_folder(options) / f"study{kind}")) for kind in (".db", ".journal"))
        store = single if single.exists() or (options.workers == 1 and not several.exists()) else several
    if store.one_process and options.workers > 1:
        raise ValueError(
            f"workers: expected 1 with {store}, which is SQLite and for one process, got {options.workers}; "
            "choose another --name or --storage"
        )
    return store
