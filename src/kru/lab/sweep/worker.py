"""A worker: runs one trial after the other until the sweep has all of them."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from kru.lab.recipes.settings import Recipe
from kru.lab.run import BusyRunError, DivergedRunError, RunOptions, train
from kru.lab.sweep.locks import LockLostError
from kru.lab.sweep.storage import DATABASE_ERRORS
from kru.lab.sweep.sweep import DIVERGED, TEST, Claimed, Sweep
from kru.nn.model import build_model
from kru.training.checkpoint import Checkpoint, Progress
from kru.training.folder import CHECKPOINT
from kru.training.interrupt import Interrupted, Interruptible
from kru.training.trainer import Event

POLL = 1.0
"""Seconds between two looks at the sweep while other workers have all remaining trials."""

MOST_FAILURES = 10
"""So often in a row the storage may fail before a worker gives up."""


class Pruned(Exception):  # noqa: N818  (not an error)
    """The validation curve of a trial is hopeless."""


class NotFinite(Exception):  # noqa: N818  (not an error)
    """The validation measure of a trial is no longer finite."""


class Stop(Interruptible):
    """Listens for signals, and for the end of the process that started this one."""

    def __init__(self, parent: int = 0) -> None:
        super().__init__()
        self._parent = parent

    def check(self) -> None:
        super().check()
        if self._parent and os.getppid() != self._parent:
            raise Interrupted(signal.SIGTERM)


def work(sweep: Sweep, run_options: RunOptions, stop: Stop) -> None:
    """Run trials until the sweep has all of its trials and every one is finished.

    Args:
        run_options: whose folder has a folder for each trial.

    Raises:
        Interrupted: a signal asked to stop; the trial of this worker waits for the next one.
        ValueError: the recipe of a trial makes no sense.
        RunError: the storage or the disk failed.
    """
    failures = 0
    busy: int | None = None
    with stop, sweep.errors():
        while True:
            stop.check()
            try:
                claimed = sweep.claim(skip=busy)
                busy = None
                if claimed is None:
                    if sweep.finished():
                        return
                    time.sleep(POLL)
                elif not run_trial(sweep, claimed, run_options, stop):
                    busy = claimed.trial.number
                failures = 0
            except (LockLostError, *DATABASE_ERRORS):
                # The connection broke. Its trial is free again, for this worker or for a faster one.
                failures += 1
                if failures == MOST_FAILURES:
                    raise
                time.sleep(POLL)


def run_trial(sweep: Sweep, claimed: Claimed, run_options: RunOptions, stop: Stop) -> bool:
    """Train a trial's recipe, from its last checkpoint if it has one in the folder, and finish the trial.

    Returns:
        False if another process is still training there, one that does not know yet that it lost its lock.
    """
    number = claimed.trial.number
    told = f"trial {number} ({describe(claimed.values)})"
    folder = trial_folder(run_options.folder, number)
    if claimed.again:
        _say(f"{told}: {_where_it_goes_on(folder)}")
    try:
        recipe = _recipe(sweep, claimed, told)
        watch = _watcher(sweep, claimed, recipe)
        result = train(
            recipe, sweep.settings.source, replace(run_options, folder=folder), watch=watch, stop=stop
        )
        if not math.isfinite(result["valid"]):
            raise NotFinite
        sweep.tell(claimed, result["valid"], TrialState.COMPLETE, **{TEST: result["test"]})
        _say(f"{told}: {result['valid']:.4g}")
    except Pruned as pruned:
        sweep.tell(claimed, None, TrialState.PRUNED)
        _say(f"{told}: pruned {pruned}")
    except (DivergedRunError, NotFinite):
        sweep.tell(claimed, None, TrialState.PRUNED, **{DIVERGED: True})
        _say(f"{told}: diverged")
    except BusyRunError:
        sweep.leave(claimed)
        return False
    except Interrupted:
        sweep.leave(claimed)
        raise
    finally:
        sweep.release(claimed)
    return True


def trial_folder(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:04d}"


def position(recipe: Recipe, progress: Progress) -> int | None:
    """Where on the validation curve a run stands: epochs, or steps if it validates by steps; None between."""
    every = recipe.evaluation.every
    if every:
        return progress.step if progress.step % every == 0 else None
    return progress.epoch if progress.index == 0 else None


def describe(values: dict[str, Any]) -> str:
    """The values of a trial for people.

    >>> describe({"penalty": 0.0123, "optimizer.name": "adam"})
    'penalty 0.0123, optimizer.name adam'
    """
    return ", ".join(f"{field} {brief(value)}" for field, value in values.items())


def brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _where_it_goes_on(folder: Path) -> str:
    path = folder / CHECKPOINT
    if not path.exists():
        return f"begins again, there is no checkpoint in {folder}"
    return f"resumed from step {Checkpoint.load(path).progress.step:,}"


def _recipe(sweep: Sweep, claimed: Claimed, told: str) -> Recipe:
    """The recipe of a trial; one of which no model can be made is the end of the trial and of the sweep."""
    try:
        recipe = sweep.settings.space.apply(sweep.settings.recipe, claimed.values)
        build_model(recipe.model, recipe.task.sizes)
    except ValueError as error:
        sweep.tell(claimed, None, TrialState.FAIL)
        raise ValueError(f"{told}: {error}") from error
    return recipe


def _watcher(sweep: Sweep, claimed: Claimed, recipe: Recipe) -> Callable[[Event], None]:
    """Reports validations to the sweep and raises `Pruned` when they look hopeless."""
    reported = set(sweep.trials()[claimed.trial.number].intermediate_values)

    def watch(event: Event) -> None:
        if event.valid is None:
            return
        if not math.isfinite(event.valid):
            raise NotFinite
        where = position(recipe, event.progress)
        if where is None:
            return
        sweep.locks.check()
        # A run that goes on from a checkpoint validates again what came after that, with the same outcome.
        if where not in reported:
            claimed.trial.report(event.valid, where)
            reported.add(where)
        if claimed.trial.should_prune():
            unit = "step" if recipe.evaluation.every else "epoch"
            raise Pruned(f"at {unit} {where:,} with {event.valid:.4g}")

    return watch


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
