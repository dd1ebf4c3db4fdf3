"""A run in its folder: start or resume it, interrupt or finish it, and make its result."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from kru.lab.folder import current_result, discard_result, made_from, other_files
from kru.lab.recipes.files import differences
from kru.lab.recipes.settings import Recipe
from kru.lab.result import (
    commit,
    expect_weights,
    make_result,
    parse_result,
    read_recipe,
    write_result,
    write_weights,
)
from kru.lab.trainer import RecipeTrainer, load_checkpoint, model_from, recipe_in, task_sizes
from kru.training.checkpoint import Checkpoint, read_tensors
from kru.training.distributed import Processes
from kru.training.files import lock_file, unlock_file
from kru.training.fitting import expect_fitting
from kru.training.folder import CHECKPOINT, LOCK, METRICS, RESULT, WEIGHTS
from kru.training.interrupt import Interruptible
from kru.training.progress import Display
from kru.training.settings import expect_budget
from kru.training.trainer import DivergedError, Event
from kru.training.wrong_path import is_wrong_path


class RunError(RuntimeError):
    """A run ended without a result; the message says why and what to do."""


class DivergedRunError(RunError):
    """The loss is no longer finite; the folder has a result for the best weights so far."""


class BusyRunError(RunError):
    """Another process is training in the folder."""


@dataclass(frozen=True)
class RunOptions:
    """The folders of a run, and how its progress is shown.

    Attributes:
        folder: of the run.
        data_dir: of the data.
        checkpoint_seconds: maximum time between two checkpoints.
        quiet: whether to show no progress.
        tensorboard: whether to write events for TensorBoard as well.
        cpu_time: whether to measure CPU time instead of wall-clock time.
        results: folder of recorded results; a recipe can start from recorded weights.
    """

    folder: Path
    data_dir: Path | None = None
    checkpoint_seconds: float = 30.0
    quiet: bool = False
    tensorboard: bool = False
    cpu_time: bool = False
    results: Path = Path("results")

    def __post_init__(self) -> None:
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint-seconds: expected at least 0, got {self.checkpoint_seconds}")


def weights_path(name: Path) -> Path:
    """The weights file for the folder of a run, a file, or a file name without its suffix."""
    if name.is_dir():
        return name / WEIGHTS
    path = name if name.suffix == ".safetensors" else name.with_name(name.name + ".safetensors")
    if not path.is_file():
        raise ValueError(f"{name}: no such weights; expected a .safetensors file or the folder of a run")
    return path


def train(
    recipe: Recipe,
    source: str,
    run_options: RunOptions,
    *,
    resume: bool = False,
    start: Mapping[str, Tensor] | None = None,
    command: str = "",
    watch: Callable[[Event], None] | None = None,
    stop: Interruptible | None = None,
    processes: Processes | None = None,
) -> dict[str, Any]:
    """Run a recipe from the start or from the checkpoint in its folder, and return the result.

    The result in the folder is returned if it was made from the checkpoint there and from this budget. Otherwise
    training resumes from the checkpoint and ends with a new result.

    Args:
        source: the recipe's name or path, for the command that the result names.
        resume: insist that there is a checkpoint.
        start: initial weights instead of random ones, where there is no checkpoint yet.
        command: what the result names as its command, where that is not `kru train`; then `source` is not read.
        watch: called with each event of the loop; what it raises ends the run.
        stop: what listens for signals already, where one run is part of something longer.
        processes: those that train together, all of which have to call this; the first alone reads and writes
            the folder.

    Raises:
        ValueError: the folder has a run with other settings, one that trained for longer than the budget, or files
            of something else; with `resume`, no run; or it can't be written to.
        Interrupted: a signal asked to stop; there is a checkpoint.
        DivergedRunError: the loss was no longer finite.
        BusyRunError: another process is training in the folder.
        RunError: a file could not be written, or no measure was ever finite.
    """
    expect_budget(recipe)
    commit()  # remembered for the result: that of the source which this process has read
    processes = processes or Processes()
    # Only what is read under the lock counts; this is to refuse a wrong folder before the data are loaded.
    seen = _load_run(recipe, run_options.folder, processes, resume=resume)
    task = recipe.task.load(run_options.data_dir)
    trainer = RecipeTrainer(
        recipe,
        task,
        source=source,
        folder=run_options.folder if processes.is_first else None,
        checkpoint_seconds=run_options.checkpoint_seconds,
        start=start,
        command=command,
        clock=time.process_time if run_options.cpu_time else time.monotonic,
        processes=processes,
    )
    started = (
        _start_weights(trainer, run_options) if seen is None and start is None and recipe.start else None
    )
    agree = processes.largest if processes.count > 1 else None
    listening = Interruptible(agree) if stop is None else contextlib.nullcontext(stop)
    try:
        with _locked(run_options.folder, processes):
            checkpoint = _load_run(recipe, run_options.folder, processes, resume=resume)
            _expect_own_files(trainer, checkpoint, run_options.folder, replace_weights=start is not None)
            if checkpoint is not None:
                result = _finished(trainer, checkpoint, run_options.folder)
                if result is not None:
                    return result
            elif start is None and recipe.start:
                trainer.model.load_state_dict(started or _start_weights(trainer, run_options))
            return _train(trainer, run_options, checkpoint, listening, watch)
    except OSError as error:
        if is_wrong_path(error):
            raise ValueError(
                f"{run_options.folder}: expected a folder to write to ({error.strerror}); choose another --out"
            ) from error
        raise RunError(
            f"{run_options.folder}: cannot write ({error.strerror or error}); what was there before is whole: make "
            "room and run the same command to resume from the last checkpoint"
        ) from error


def _finished(trainer: RecipeTrainer, checkpoint: Checkpoint, folder: Path) -> dict[str, Any] | None:
    """The result in the folder, if that is what the trainer would end with; raises if the run can't be resumed."""
    recipe, processes = trainer.recipe, trainer.processes
    _expect_same_data(trainer, checkpoint, folder)
    _expect_within_budget(trainer, checkpoint, folder)
    if not checkpoint.progress.stopped or recipe_in(checkpoint.origin) != recipe:
        return None
    recorded = processes.bytes_of_first(current_result(folder, recipe) if processes.is_first else b"")
    return parse_result(recorded, folder / RESULT) if recorded else None


def _train(
    trainer: RecipeTrainer,
    run_options: RunOptions,
    checkpoint: Checkpoint | None,
    listening: contextlib.AbstractContextManager[Interruptible],
    watch: Callable[[Event], None] | None,
) -> dict[str, Any]:
    recipe, task, processes = trainer.recipe, trainer.task, trainer.processes
    events = run_options.folder if run_options.tensorboard and processes.is_first else None
    display = Display(
        recipe.name, recipe, task, quiet=run_options.quiet or not processes.is_first, folder=events
    )

    def report(event: Event) -> None:
        display.show(event)
        if watch is not None:
            watch(event)

    with listening as interruptible, display:
        trainer.report = report
        trainer.check = interruptible.check
        if checkpoint is not None:
            _restore(trainer, checkpoint, run_options.folder)
            display.resumed(trainer)
            if processes.is_first:
                discard_result(run_options.folder)
        try:
            stopped = trainer.train()
        except DivergedError as error:
            display.close()
            raise DivergedRunError(_explain(error, trainer, run_options)) from error
    if not trainer.best_weights:
        raise RunError(f"{run_options.folder}: the {task.measure.name} was never finite; {_advice(recipe)}")
    return _conclude(trainer, run_options, stopped)


def _restore(trainer: RecipeTrainer, checkpoint: Checkpoint, folder: Path) -> None:
    recipe = trainer.recipe
    try:
        # Before a model is built whose size the file decides.
        last = checkpoint.model or trainer.model_settings
        for settings, weights in (
            (last, checkpoint.weights),
            (checkpoint.best_model or last, checkpoint.best_weights),
        ):
            # None are the best before the first validation.
            if weights or weights is checkpoint.weights:
                model = model_from(recipe, settings)
                expect_weights(recipe.name, model, task_sizes(trainer.task), weights)
        trainer.restore(checkpoint)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / CHECKPOINT}: training cannot resume from it ({error}), as of another version or a changed "
            f"file; {_begin_anew(folder)}"
        ) from error


def _conclude(trainer: RecipeTrainer, run_options: RunOptions, stopped: str) -> dict[str, Any]:
    """Measure the best weights and write them, and what is known of the run."""
    result = make_result(trainer, run_options.folder / METRICS, stopped)
    if trainer.processes.is_first:
        best = replace(trainer.recipe, model=model_from(trainer.recipe, trainer.best_model_settings))
        write_weights(run_options.folder / WEIGHTS, trainer.best_weights, best)
        result["made_from"] = made_from(run_options.folder, trainer.recipe)
        write_result(run_options.folder / RESULT, result)
    return result


def _load_run(recipe: Recipe, folder: Path, processes: Processes, *, resume: bool) -> Checkpoint | None:
    """The checkpoint in the folder, one of this recipe; with `resume` there has to be one."""
    checkpoint = _load_checkpoint(folder, processes)
    if checkpoint is not None:
        _expect_same(recipe, checkpoint, folder)
    elif resume:
        raise ValueError(f"{folder}: no checkpoint to resume from")
    return checkpoint


def _load_checkpoint(folder: Path, processes: Processes) -> Checkpoint | None:
    """The checkpoint in the folder that the first process sees."""
    try:
        return _read_checkpoint(folder / CHECKPOINT, processes)
    except ValueError as error:
        raise ValueError(f"{error}; {_begin_anew(folder)}") from error


def _begin_anew(folder: Path) -> str:
    return f"to begin anew remove the folder {folder}, or choose another --out"


def _read_checkpoint(path: Path, processes: Processes) -> Checkpoint | None:
    if processes.count == 1:
        return load_checkpoint(path)[1] if path.exists() else None
    data = processes.bytes_of_first(path.read_bytes() if processes.is_first and path.exists() else b"")
    if not data:
        return None
    with tempfile.TemporaryDirectory() as copies:
        copy = Path(copies) / CHECKPOINT
        copy.write_bytes(data)
        return load_checkpoint(copy)[1]


def _explain(error: DivergedError, trainer: RecipeTrainer, run_options: RunOptions) -> str:
    """Keep the last good weights, record what there is, and say so."""
    kept = "best"
    if not trainer.best_weights:
        checkpoint = _load_checkpoint(run_options.folder, trainer.processes)
        assert checkpoint is not None, "the first thing a run does is to write one"
        trainer.keep(checkpoint)
        kept = "last good"
    _conclude(trainer, run_options, "diverged")
    kept = f"the {kept} weights, of step {trainer.progress.best_step}, are in {run_options.folder / WEIGHTS}"
    return f"training diverged: {error}; {kept}; {_advice(trainer.recipe)}"


def _advice(recipe: Recipe) -> str:
    lr = recipe.optimizer.lr
    if recipe.model.kind.startswith("kru") and recipe.model.train_recurrent:
        scale = recipe.optimizer.recurrent_scale
        return (
            f"try a lower rate for the factors (--optimizer.recurrent-scale {scale / 3:.2g}), a stronger "
            f"penalty (--penalty {10 * recipe.penalty or 0.01:g}) or --optimizer.lr {lr / 3:.2g}, with "
            "another --out"
        )
    return f"try --optimizer.lr {lr / 3:.2g} or --optimizer.clip 1, with another --out"


def _start_weights(trainer: RecipeTrainer, run_options: RunOptions) -> Mapping[str, Tensor]:
    """The weights that a recipe says to begin with."""
    recipe = trainer.recipe
    name = recipe.start.replace("{seed}", str(recipe.seed)).replace("{results}", str(run_options.results))
    try:
        path = weights_path(Path(name).expanduser())
    except ValueError as error:
        raise ValueError(
            f"start: {error}; of another recipe: train that first, with the same --results"
        ) from None
    other, (_, weights) = read_recipe(path), read_tensors(path)
    try:
        expect_fitting(weights, trainer.model.state_dict())
    except ValueError as error:
        raise ValueError(
            f"start: expected weights of the model of {recipe.name}, got {path}, of {other.name} ({error})"
        ) from error
    return weights


def _expect_same(recipe: Recipe, checkpoint: Checkpoint, folder: Path) -> None:
    other = differences(recipe, recipe_in(checkpoint.origin), budget=False)
    if other:
        changed = ", ".join(f"{name} {value}" for name, value in other.items())
        raise ValueError(
            f"{folder}: has a run with other settings (here {changed}); choose another --out, or remove it"
        )


def _expect_same_data(trainer: RecipeTrainer, checkpoint: Checkpoint, folder: Path) -> None:
    if checkpoint.data and checkpoint.data != trainer.data:
        here, now = (
            ", ".join(f"{name} {value:.6g}" for name, value in data.items())
            for data in (checkpoint.data, trainer.data)
        )
        raise ValueError(
            f"{folder}: has a run on other data (there {here}; now {now}); choose another --out, or remove it"
        )


def _expect_own_files(
    trainer: RecipeTrainer, checkpoint: Checkpoint | None, folder: Path, *, replace_weights: bool
) -> None:
    """Raise in all processes if the run would replace files that are not its own."""
    processes = trainer.processes
    found = ""
    if processes.is_first:
        own = None if checkpoint is None else recipe_in(checkpoint.origin)
        found = other_files(folder, own, replaces=trainer.recipe if replace_weights else None)
    found = processes.bytes_of_first(found.encode()).decode()
    if found:
        raise ValueError(f"{folder}: {found}; choose another --out, or remove what is no longer needed")


def _expect_within_budget(trainer: RecipeTrainer, checkpoint: Checkpoint, folder: Path) -> None:
    """Raise if the run has trained for longer than it now should: its weights are not the ones asked for."""
    recipe, progress = trainer.recipe, checkpoint.progress
    batches = trainer.task.train_batches(recipe.batch_size, epoch=progress.epoch, seed=recipe.seed)
    spent = {
        "steps": progress.step,
        "epochs": progress.epoch + progress.index / len(batches),
        "minutes": progress.seconds / 60,
    }
    for bound, value in spent.items():
        budget = getattr(recipe, bound)
        # A budget in minutes ends with the first step after it, so a finished run always exceeds its own.
        if bound == "minutes" and budget == recipe_in(checkpoint.origin).minutes:
            continue
        if budget and value > budget:
            raise ValueError(
                f"{folder}: has a run of {_brief(value)} {bound}, more than the budget of {_brief(budget)}; a run "
                "cannot be shortened: choose another --out"
            )


def _brief(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


@contextlib.contextmanager
def _locked(folder: Path, processes: Processes) -> Iterator[None]:
    """Keep other processes than these out of the folder of a run, which is made if there is none."""
    descriptor = lock_file(folder / LOCK, wait=False) if processes.is_first else None
    try:
        if not processes.first(float(descriptor is not None)):
            raise BusyRunError(f"{folder}: another process is training there")
        yield
    finally:
        if descriptor is not None:
            unlock_file(descriptor)
