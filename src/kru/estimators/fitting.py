"""How an estimator's `fit` uses the trainer: settings, progress, Ctrl-C, and continuing."""

import json
import math
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from tqdm import tqdm

from kru.estimators.network import NetworkSettings
from kru.estimators.saving import describe, described
from kru.nn.model import SequenceModel
from kru.training.checkpoint import Checkpoint
from kru.training.distributed import Processes
from kru.training.folder import CHECKPOINT
from kru.training.interrupt import Interrupted, Interruptible
from kru.training.settings import (
    EvaluationSettings,
    OptimizerSettings,
    ScheduleSettings,
    TrainingSettings,
)
from kru.training.task import Task
from kru.training.trainer import DivergedError, Event, Trainer

STEPS = 600
"""The budget of a small data set, in steps."""
EPOCHS = 20
"""The budget of a large one, in passes over it."""
CHECKPOINT_SECONDS = 30.0
"""The longest time between two checkpoints of a fit."""
VALIDATIONS = 40
"""Into how many parts validations divide the budget."""


@dataclass
class Saved:
    """The folder with the checkpoints of a fit.

    Attributes:
        folder: of checkpoint.safetensors and metrics.jsonl.
        description: what is trained on what, values for JSON; training continues only from a checkpoint of the same.
        resume: whether it continues at all.
    """

    folder: Path
    description: dict[str, Any]
    resume: bool

    def origin_of(self, settings: NetworkSettings, training: TrainingSettings) -> dict[str, Any]:
        """What a checkpoint keeps of a fit."""
        # The budget may change, and the times of validations with it.
        kept = {name: v for name, v in asdict(training).items() if name not in ("steps", "evaluation")}
        return {**self.description, "network": asdict(settings), "training": kept}

    def checkpoint(self, origin: dict[str, Any]) -> Checkpoint | None:
        """The one to continue from; a warning says why there is none."""
        path = self.folder / CHECKPOINT
        if not self.resume or not path.is_file():
            return None
        checkpoint = Checkpoint.load(path)
        wanted = json.loads(json.dumps(origin))
        differing = [
            name for name in ("data", "network", "training") if checkpoint.origin.get(name) != wanted[name]
        ]
        if not differing:
            return checkpoint
        warnings.warn(
            f"fit: {path} is of a fit with other {' and '.join(differing)}; training does not continue from it",
            stacklevel=5,
        )
        return None


@dataclass
class Outcome:
    """What came out of a fit.

    Attributes:
        network: with the best weights.
        steps: taken so far.
        loss: the best validation loss, the last training loss without validation.
        trainer: where training was interrupted, so that it can be continued; else None.
    """

    network: SequenceModel
    steps: int
    loss: float
    trainer: Trainer | None


def saved_in(estimator: Any, data: str, part: str = "") -> Saved | None:
    """Where a fit of an estimator keeps its checkpoints; none without a folder.

    Args:
        data: a digest of what is trained on.
        part: of a fit that trains several times, which of them.
    """
    if estimator.folder is None:
        return None
    if not isinstance(estimator.folder, str | Path):
        raise ValueError(f"folder: expected a path or None, got {estimator.folder!r}")
    return Saved(
        Path(estimator.folder) / part,
        {"estimator": describe(estimator), "part": part, "data": data},
        bool(estimator.warm_start),
    )


def interrupted_estimator(folder: Path) -> Any:
    """The estimator whose fit left checkpoints in a folder, not fitted; None for none."""
    path = next(iter(sorted(folder.rglob(CHECKPOINT))), None) if folder.is_dir() else None
    if path is None:
        return None
    stored = Checkpoint.load(path).origin.get("estimator")
    try:
        return described(stored if isinstance(stored, dict) else {})
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path}: expected the checkpoint of a fit ({error})") from error


def budget(steps: int | None, epochs: int | None, cases: int, batch_size: int) -> int:
    """The number of steps of a fit."""
    for name, value in (("steps", steps), ("epochs", epochs)):
        if value is not None and not (isinstance(value, int) and value > 0):
            raise ValueError(f"{name}: expected a positive integer or None, got {value!r}")
    an_epoch = -(-cases // batch_size)
    bounds = [bound for bound in (steps, epochs and epochs * an_epoch) if bound]
    return min(bounds) if bounds else max(STEPS, EPOCHS * an_epoch)


def train(
    settings: NetworkSettings,
    task: Task,
    training: TrainingSettings,
    *,
    device: str,
    verbose: bool,
    name: str,
    start: dict[str, Tensor] | None = None,
    trainer: Trainer | None = None,
    saved: Saved | None = None,
) -> Outcome:
    """Train a network, or continue with a trainer that was interrupted, or from a checkpoint.

    Ctrl-C ends the training between two steps, with a warning; the weights are then the best so far. The global random
    generator of torch is left as it was.

    Args:
        start: initial weights; not used where there is a checkpoint of an unfinished training.
        trainer: one that was interrupted, with these settings.
        saved: where checkpoints are written, and whether to continue from the one that is there.
    """
    bar = tqdm(total=training.steps, desc=name, unit="step", disable=not verbose, file=sys.stderr, leave=True)
    last_loss = math.nan
    # Factors start exactly unitary from the seed alone, whatever the global generator was.
    with bar, Interruptible() as interruptible, torch.random.fork_rng(devices=[]):

        def report(event: Event) -> None:
            nonlocal last_loss
            if event.loss is not None:
                last_loss = event.loss
                bar.set_postfix_str(f"loss {event.loss:.4g}", refresh=False)
                bar.update(event.progress.step - bar.n)

        if trainer is None:
            origin = {} if saved is None else saved.origin_of(settings, training)
            checkpoint = None if saved is None else saved.checkpoint(origin)
            if (
                checkpoint is not None
                and start is not None
                and checkpoint.progress.step >= (training.steps or 0)
            ):
                checkpoint = None  # of the training that these weights come from
            trainer = Trainer(
                lambda ignored: settings.build(),
                task,
                training,
                origin=origin,
                start=start if checkpoint is None else None,
                folder=None if saved is None else saved.folder,
                checkpoint_seconds=CHECKPOINT_SECONDS,
                processes=Processes(device=device),
            )
            if checkpoint is not None:
                trainer.restore(checkpoint)
        bar.update(trainer.progress.step)
        trainer.report, trainer.check = report, interruptible.check
        interrupted = False
        try:
            trainer.train()
        except Interrupted:
            interrupted = True
            warnings.warn(
                f"fit: interrupted after {trainer.progress.step} of {training.steps} steps; the weights are those so "
                "far, and fit continues with warm_start=True",
                stacklevel=4,
            )
        except DivergedError as error:
            if not trainer.best_weights:
                raise ValueError(f"fit: {error}; expected a smaller learning_rate") from error
            warnings.warn(
                f"fit: {error}; the weights are those of step {trainer.progress.best_step}",
                ConvergenceWarning,
                stacklevel=4,
            )
        # Before the first validation, or without any, an interrupted training has no best weights yet.
        if trainer.best_weights and (not interrupted or task.size("valid")):
            network: Any = trainer.best_model()
        else:
            network = settings.build().to(device)
            network.load_state_dict(trainer.model.state_dict())
    best = trainer.progress.best
    return Outcome(
        network.eval(),
        trainer.progress.step,
        last_loss if best is None else best,
        trainer if interrupted else None,
    )


def training_settings(
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    recurrent_learning_rate: float | None,
    penalty: float,
    average: float,
    patience: int | None,
    seed: int,
) -> TrainingSettings:
    """The trainer's settings: Adam, a cosine schedule, clipped gradients, a learning rate of the factors' own."""
    scale = 0.3 if recurrent_learning_rate is None else recurrent_learning_rate / learning_rate
    return TrainingSettings(
        optimizer=OptimizerSettings("adam", learning_rate, recurrent_scale=scale, clip=1.0),
        schedule=ScheduleSettings("cosine", stop_after=patience or 0),
        evaluation=EvaluationSettings(every=max(1, steps // VALIDATIONS)),
        batch_size=batch_size,
        penalty=penalty,
        average=average,
        steps=steps,
        seed=seed,
    )
