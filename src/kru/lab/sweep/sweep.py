"""A sweep: what its workers share (an Optuna study), and which trial comes next."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from kru.lab.recipes.files import recipe_mapping
from kru.lab.recipes.settings import Recipe
from kru.lab.run import RunError
from kru.lab.sweep.locks import Locks
from kru.lab.sweep.space import Space
from kru.lab.sweep.storage import Store
from kru.lab.tasks import Measure

MOST_DEATHS = 10
"""So many workers in a row may die with a trial before its next validation; then it is given up."""
TRIALS = 20
"""Trials of a sweep if nobody says how many."""
PRUNING_FROM = 5
"""Finished trials before the first one is pruned: a median of fewer says little."""

# What a sweep and a trial store besides what Optuna itself writes down.
SETTINGS = "kru settings"
DEATHS = "deaths"
DIVERGED = "diverged"
TEST = "test"


@dataclass(frozen=True)
class Settings:
    """What all workers of a sweep must agree on."""

    recipe: Recipe
    source: str
    """the recipe's name or path, for the commands that are shown"""
    space: Space
    sampler: Literal["tpe", "grid"]
    measure: Measure

    def mapping(self) -> dict[str, Any]:
        """As JSON, stored with the sweep."""
        settings = {
            "recipe": recipe_mapping(self.recipe),
            "space": self.space.table,
            "sampler": self.sampler,
            "measure": self.measure.name,
            "name": self.recipe.name,
            "source": self.source,
        }
        copied: dict[str, Any] = json.loads(json.dumps(settings))
        return copied


class Plan(NamedTuple):
    """How a sweep searches; workers may differ in it."""

    trials: int = 0
    """how many the sweep will have in the end; 0: every point of a grid, else 20"""
    startup: int = 10
    """trials with random values before TPE's model is used"""
    prune: bool = True


class Claimed(NamedTuple):
    """A trial that this worker has, and whether another one had it before."""

    trial: Trial
    values: dict[str, Any]
    again: bool


class Sweep:
    """A sweep that this worker has joined, by `join`.

    The workers of a sweep share nothing but its storage and its locks. What must not happen twice is
    done alone: to create the sweep, to draw a trial, to take one up. A trial keeps its number and its values
    for life; its state is RUNNING until it is finished, whichever workers have it in turn.
    """

    def __init__(
        self, study: optuna.Study, settings: Settings, plan: Plan, locks: Locks, store: Store
    ) -> None:
        self.study = study
        self.settings = settings
        self.plan = plan
        self.locks = locks
        self.store = store
        self._grid = settings.space.grid() if settings.sampler == "grid" else []

    @property
    def size(self) -> int:
        """How many trials the sweep will have."""
        if self._grid:
            return min(self.plan.trials or len(self._grid), len(self._grid))
        return self.plan.trials or TRIALS

    def errors(self) -> AbstractContextManager[None]:
        """Errors of the storage as one line."""
        return self.store.errors()

    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def finished(self) -> bool:
        """Whether nothing is left to do for anybody."""
        trials = self.trials()
        return len(trials) >= self.size and all(trial.state.is_finished() for trial in trials)

    def claim(self, skip: int | None = None) -> Claimed | None:
        """A trial for this worker: one that lost its worker, else a new one; None if there is none now.

        Args:
            skip: the number of a trial that is not to be taken up.
        """
        with self.locks.alone():
            trials = self.trials()
            for trial in trials:
                if trial.number == skip or trial.state != TrialState.RUNNING:
                    continue
                if self.locks.take(self._lock(trial.number)):
                    claimed = self._take_up(trial.number)
                    if claimed is not None:
                        return claimed
            if len(trials) >= self.size and all(trial.state != TrialState.WAITING for trial in trials):
                return None
            return self._draw(trials)

    def release(self, claimed: Claimed) -> None:
        """Let others have the lock of a trial: it is finished, or this worker stops."""
        self.locks.give(self._lock(claimed.trial.number))

    def leave(self, claimed: Claimed) -> None:
        """Note that a worker leaves a trial for reasons of its own, which are no sign against the trial."""
        claimed.trial.set_user_attr(DEATHS, [0, 0])

    def tell(self, claimed: Claimed, value: float | None, state: TrialState, **attributes: Any) -> None:
        """Finish a trial; only the worker that still has its lock may."""
        self.locks.check()
        for name, attribute in attributes.items():
            claimed.trial.set_user_attr(name, attribute)
        self.study.tell(claimed.trial, value, state, skip_if_finished=True)

    def _draw(self, trials: list[FrozenTrial]) -> Claimed:
        number = len(trials)
        if self._grid and all(trial.state != TrialState.WAITING for trial in trials):
            self.study.enqueue_trial(self._grid[number])
        self._seed(number)
        trial = self.study.ask()
        self.locks.take(self._lock(trial.number))
        return Claimed(trial, self.settings.space.suggest(trial), again=False)

    def _take_up(self, number: int) -> Claimed | None:
        """A trial whose lock this worker has just taken; None, without the lock, if nothing is left to do for it."""
        # Looked at again: its worker may have finished it, and given the lock back, since `claim` read the sweep.
        frozen = self.trials()[number]
        if frozen.state != TrialState.RUNNING:
            self.locks.give(self._lock(number))
            return None
        # Deaths so far, and how many validations there were at the last one.
        deaths, before = frozen.user_attrs.get(DEATHS, [0, 0])
        reported = len(frozen.intermediate_values)
        deaths = 1 if reported > before else deaths + 1
        self._seed(number)
        trial = Trial(self.study, frozen._trial_id)
        if deaths > MOST_DEATHS:
            self.study.tell(trial, state=TrialState.FAIL)
            self.locks.give(self._lock(number))
            return None
        trial.set_user_attr(DEATHS, [deaths, reported])
        return Claimed(trial, self.settings.space.suggest(trial), again=True)

    def _lock(self, number: int) -> str:
        return f"{self.study.study_name} trial-{number}"

    def _seed(self, number: int) -> None:
        """With one worker, the same seed of the recipe gives the same trials, also after interruptions."""
        seed = (self.settings.recipe.seed * 1_000_003 + number) % 2**32
        self.study.sampler = TPESampler(seed=seed, n_startup_trials=self.plan.startup)


@contextmanager
def join(name: str, settings: Settings, plan: Plan, store: Store) -> Iterator[Sweep]:
    """Create a sweep, or join it if it exists already.

    Raises:
        ValueError: the sweep was started with other settings.
        RunError: the storage cannot be opened, or another process has it and it is for one.
    """
    with ExitStack() as stack:
        locks = stack.enter_context(closing(store.locks()))
        if store.one_process and not locks.take("process"):
            raise RunError(f"{store}: another process is running this sweep; SQLite is for one process")
        with store.errors(), locks.alone():
            study = optuna.create_study(
                study_name=name,
                storage=stack.enter_context(store.open()),
                direction="minimize" if settings.measure.lower_is_better else "maximize",
                pruner=_pruner(settings.recipe) if plan.prune else NopPruner(),
                load_if_exists=True,
            )
            _agree(study, settings)
        yield Sweep(study, settings, plan, locks, store)


@contextmanager
def look_at(name: str, store: Store) -> Iterator[optuna.Study]:
    """An existing sweep, without joining it."""
    missing = f"{store}: has no sweep {name!r}"
    if not store.exists():
        raise ValueError(missing)
    with store.errors(), store.open() as storage:
        try:
            study = optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            raise ValueError(missing) from None
        yield study


def _agree(study: optuna.Study, settings: Settings) -> None:
    """Store the settings with a new sweep; an existing one must have the same."""
    ours = settings.mapping()
    theirs = study.user_attrs.get(SETTINGS)
    if theirs is None:
        study.set_user_attr(SETTINGS, ours)
        return
    other = [key for key in ("recipe", "space", "sampler") if theirs.get(key) != ours[key]]
    if other:
        raise ValueError(
            f"sweep {study.study_name}: was started with another {' and '.join(other)}; give the same, or "
            "choose another --name"
        )


def _pruner(recipe: Recipe) -> BasePruner:
    """Ends a trial whose best validation is worse than the median of the others' at the same place.

    Not in the first quarter of the budget: what is slow there may be good later.
    """
    budget = recipe.steps if recipe.evaluation.every else recipe.epochs
    return MedianPruner(n_startup_trials=PRUNING_FROM, n_warmup_steps=budget // 4)
