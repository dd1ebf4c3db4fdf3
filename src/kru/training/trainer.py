"""The trainer: steps, validation, the schedule, and checkpoints from which it resumes exactly."""

import contextlib
import copy
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kru.nn.states import State
from kru.optim import optimizer
from kru.optim.penalty import unitary_penalty
from kru.training.allocator import keep_freed_memory
from kru.training.average import WeightAverage
from kru.training.checkpoint import Checkpoint, Progress
from kru.training.distance import distance_from_unitary
from kru.training.distributed import Processes
from kru.training.evaluate import evaluate
from kru.training.fitting import expect_fitting
from kru.training.folder import CHECKPOINT, METRICS
from kru.training.growth import Grown, GrowthStep, expect_growable, grow, next_growth, stalled
from kru.training.interrupt import Interrupted
from kru.training.metrics import Metrics
from kru.training.resuming import (
    expect_carried,
    expect_generator,
    expect_moments,
    expect_resumable_progress,
)
from kru.training.settings import TrainingSettings
from kru.training.task import SPLITS, Batch, Batches, Task

LOG_EVERY = 20
"""Steps between two lines of training loss in metrics.jsonl."""

ModelFactory = Callable[[Mapping[str, Any]], nn.Module]
"""Builds a model, with initial weights from torch's global generator, from its settings."""


class DivergedError(Exception):
    """The loss or the weights are no longer finite."""


@dataclass(frozen=True)
class Event:
    """What the trainer reports: after each step with `loss`, after each validation with `valid`, after growth
    with `grown`."""

    progress: Progress
    penalty: float | None
    loss: float | None = None
    valid: float | None = None
    is_best: bool = False
    distance: float | None = None
    grown: Grown | None = None


class Trainer:
    """Trains a model on a task: `train` runs until the budget is used up.

    A checkpoint determines everything that follows, so a run that is resumed from one takes the same steps, bit for
    bit, as one that was never interrupted (with the same number of
    threads, and a budget in steps or epochs).

    A model is called as ``model(inputs, state, lengths)``, with inputs (T, B, D) or symbols (T, B), the state that
    it returned for the batch before or None, and the lengths of the sequences, int64 (B,), or None if all have T
    steps; it returns its outputs and its last state.

    Args:
        model: a module, or a function that builds one from `model_settings`, for which torch's generator is seeded
            with `settings.seed`.
        task: the batches, the loss and the measure. One whose validation split is empty is not validated, and its
            best weights are the last.
        settings: how to train.
        model_settings: values for JSON. Growth changes the entries `factors` and `rank`, and a checkpoint keeps
            them, so that the function can build a model that has grown.
        origin: values for JSON that say what is trained, such as a recipe; checkpoints keep them.
        start: initial weights, instead of the weights that the model has.
        folder: where metrics.jsonl and checkpoint.safetensors are; None to write no files.
        checkpoint_seconds: maximum time between two checkpoints.
        clock: how seconds are measured; use time.process_time on a busy machine.
        report: called with each `Event`; what it raises ends the training.
        check: called before each step and each batch of a validation; it may raise `Interrupted`, as
            `Interruptible.check` does after Ctrl-C. Then a checkpoint is written, and calling `train` again
            resumes. With several processes it is only called before steps, and has to do the same in all of them.
        processes: the processes that train together, each with its part of every batch; only the first one can have
            a folder.

    Attributes:
        progress: the current state of training.
        best_weights: the weights with the best validation measure so far; `best_model` is a model with these weights.
    """

    def __init__(
        self,
        model: nn.Module | ModelFactory,
        task: Task,
        settings: TrainingSettings,
        *,
        model_settings: Mapping[str, Any] | None = None,
        origin: Mapping[str, Any] | None = None,
        start: Mapping[str, Tensor] | None = None,
        folder: Path | None = None,
        checkpoint_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[Event], None] = lambda event: None,
        check: Callable[[], None] = lambda: None,
        processes: Processes | None = None,
    ) -> None:
        self.task = task
        self.settings = settings
        self.origin = _plain(origin or {})
        self.folder = folder
        self.checkpoint_seconds = checkpoint_seconds
        self._clock = clock
        self.report = report
        self.check = check
        self.processes = processes or Processes()
        if settings.batch_size < self.processes.count:
            raise ValueError(
                f"batch-size: expected at least a sequence for each of the {self.processes.count} processes, got "
                f"{settings.batch_size}"
            )
        self.progress = Progress()
        self._source = model
        self._begin(_plain(model_settings or {}))
        if start is not None:
            self.model.load_state_dict(start)
        expect_growable(settings.growth, self.model)
        self.average = WeightAverage(self.model, settings.average) if settings.average else None
        self.best_weights: dict[str, Tensor] = {}
        self.best_model_settings = self.model_settings
        self._carried: State | None = None
        self._generator: Tensor | None = None
        self._metrics: Metrics | None = None
        self._batches: tuple[int, Batches] | None = None
        self._written = -math.inf

    def _begin(self, model_settings: dict[str, Any]) -> None:
        """The model and its optimiser, as at the beginning."""
        torch.manual_seed(self.settings.seed)
        self.model_settings = model_settings
        self.model: nn.Module = (
            self._source if isinstance(self._source, nn.Module) else self._source(model_settings)
        )
        self.model.to(self.processes.device)
        rates = self.settings.optimizer
        options: dict[str, float] = {"alpha": rates.decay} if rates.name == "rmsprop" else {}
        # Without a rate of their own they stay in the group of the others: checkpoints name states by place.
        if rates.input_scale != 1:
            options["input_lr"] = rates.lr * rates.input_scale
        self.optimizer = optimizer(
            self.model, rates.name, rates.lr, rates.lr * rates.recurrent_scale, **options
        )
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint of the same training; only the budget may differ.

        Raises:
            ValueError: something that the training needs is missing from the checkpoint, or of another kind.
        """
        settings = self.settings
        progress = replace(checkpoint.progress, stopped="")
        batches = self.task.train_batches(
            settings.batch_size, epoch=max(progress.epoch, 0), seed=settings.seed
        )
        expect_resumable_progress(progress, len(batches))
        expect_generator(checkpoint.generator)
        self.progress = progress
        if checkpoint.model not in ({}, self.model_settings):
            if isinstance(self._source, nn.Module):
                raise ValueError(
                    f"model: expected one with the settings of the checkpoint, {checkpoint.model}, got "
                    f"{self.model_settings}"
                )
            self._begin(checkpoint.model)
        expect_fitting(checkpoint.weights, self.model.state_dict())
        self.model.load_state_dict(checkpoint.weights)
        if self.task.carries_state and progress.step:
            expect_carried(checkpoint.carried, self._state_after(batches[0]))
        trained = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        expect_moments(checkpoint, settings.optimizer.name, trained)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": checkpoint.optimizer, "param_groups": groups})
        if self.average is not None:
            self.average = WeightAverage(self.model, self.settings.average)
            self.average.load(checkpoint.average)
        self.best_weights = checkpoint.best_weights
        self.best_model_settings = checkpoint.best_model or self.model_settings
        self._carried = self.processes.own_columns(checkpoint.carried)
        self._generator = checkpoint.generator

    @torch.no_grad()
    def _state_after(self, batch: Batch) -> State:
        """The state after one step of a batch, for its form."""
        inputs = batch.inputs[:1].to(self.processes.device)
        state: State = self.model(inputs, None, None)[1]
        return state

    def train(self) -> str:
        """Train until the budget is spent or the schedule says stop: "budget" or "early".

        From here on the process keeps the memory that it frees (`keep_freed_memory`).

        Raises:
            DivergedError: the last checkpoint and the best weights are those from before.
            Interrupted: by `check`; `train` can be called again.
        """
        if self.folder is not None:
            self._metrics = Metrics(self.folder / METRICS, self.progress.metrics_bytes)
        self.processes.weights_of_first(self.model)
        keep_freed_memory()
        self.model.train()
        if self._generator is not None:
            torch.set_rng_state(self._generator)
        try:
            return self._train()
        finally:
            self._generator = torch.get_rng_state()
            if self._metrics is not None:
                self._metrics.close()

    def _train(self) -> str:
        progress = self.progress
        clock = self._clock()
        try:
            while True:
                stopped = self._stopped()
                if self._validation_due() or (stopped and progress.validated < progress.step):
                    self._validate(progress.seconds + self._clock() - clock)
                    stopped = self._stopped()
                now = self._clock()
                progress.seconds += self.processes.first(now - clock)
                clock = now
                if stopped:
                    progress.stopped = stopped
                    self.save()
                    return stopped
                if progress.seconds - self._written >= self.checkpoint_seconds:
                    self.save()
                self.check()
                self._step(progress.seconds)
        except Interrupted:
            # It is only raised between steps, or during a validation that the next sitting takes again.
            self.save()
            raise

    def save(self) -> None:
        """Write a checkpoint, which replaces the previous one."""
        self._written = self.progress.seconds
        self._expect_finite()
        checkpoint = self.checkpoint()
        if self.folder is None or self._metrics is None:
            return
        checkpoint.progress.metrics_bytes = self._metrics.sync()
        checkpoint.save(self.folder / CHECKPOINT)

    def checkpoint(self) -> Checkpoint:
        """What a file would hold; its tensors are those that are trained, not copies.

        With several processes, all have to call it.
        """
        return Checkpoint(
            self.origin,
            self.progress,
            self.model.state_dict(),
            self.best_weights,
            self.optimizer.state_dict()["state"],
            self.processes.all_columns(self._carried, self.settings.batch_size),
            data=self.data,
            model=self.model_settings,
            best_model=self.best_model_settings,
            average={} if self.average is None else self.average.values,
        )

    def best_model(self) -> nn.Module:
        """A model of its own with the best weights; the one that is trained stays as it is."""
        if isinstance(self._source, nn.Module):
            model = copy.deepcopy(self.model)
        else:
            with torch.random.fork_rng(devices=[]):
                model = self._source(self.best_model_settings)
        model.load_state_dict(self.best_weights)
        return model.to(self.processes.device)

    def keep(self, checkpoint: Checkpoint) -> None:
        """Let the weights of a checkpoint be the best, such as the last good ones where none was ever validated."""
        self.best_weights, self.best_model_settings = checkpoint.weights, checkpoint.model
        self.progress.best_step = checkpoint.progress.step

    @property
    def data(self) -> dict[str, float]:
        """What a checkpoint knows of the data."""
        sizes: dict[str, float] = {split: self.task.size(split) for split in SPLITS}
        return sizes if math.isnan(self.task.baseline) else {**sizes, "baseline": self.task.baseline}

    def _step(self, seconds: float) -> None:
        settings, progress = self.settings, self.progress
        batch, weight = self.processes.share(self._epoch_batches()[progress.index], self.task)
        self._set_rates()
        self.processes.own_chance(settings.seed, progress.step)
        loss = torch.zeros((), device=self.processes.device, requires_grad=True)
        state: State | None = None
        if batch is not None:
            outputs, state = self.model(batch.inputs, self._carried if batch.carry else None, batch.lengths)
            loss = weight * self.task.loss(outputs, batch)
        penalty = None
        objective = loss
        if settings.penalty:
            penalty = unitary_penalty(self.model)
            objective = loss + settings.penalty / self.processes.count * penalty
        self.optimizer.zero_grad(set_to_none=True)
        objective.backward()  # type: ignore[no-untyped-call]
        value = self.processes.sum_gradients(list(self.model.parameters()), loss)
        if not math.isfinite(value):
            raise DivergedError(f"the loss is {value} at step {progress.step + 1}")
        if settings.optimizer.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.optimizer.clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(progress.step)
        if self.task.carries_state and state is not None:
            self._carried = (
                tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
            )
        progress.step += 1
        progress.index += 1
        if progress.index == len(self._epoch_batches()):
            progress.epoch, progress.index = progress.epoch + 1, 0
        progress.loss_sum += value
        progress.loss_count += 1
        penalty_value = None if penalty is None else penalty.item()
        if progress.step % LOG_EVERY == 0 and self._metrics is not None:
            self._metrics.write(
                step=progress.step,
                epoch=self._epochs(),
                seconds=seconds,
                loss=self._take_loss(),
                penalty=penalty_value,
            )
        self.report(Event(progress, penalty_value, value))

    def _validate(self, seconds: float) -> None:
        progress, settings = self.progress, self.settings
        # An accuracy would not tell: outputs that are not numbers have a largest one too.
        self._expect_finite()
        if not self.task.size("valid"):
            progress.validated = progress.step
            self._keep_best()
            return
        with self._averaged():
            value = evaluate(
                self.model,
                self.task,
                "valid",
                settings.evaluation.batch_size,
                sequences=settings.evaluation.sequences,
                between=self.check if self.processes.count == 1 else lambda: None,
                processes=self.processes,
            )
        # Not before: an interrupted validation is taken again.
        progress.validated = progress.step
        growth = next_growth(settings.growth, self.model)
        is_best = math.isfinite(value) and (
            progress.best is None or self.task.measure.improves(value, progress.best)
        )
        if is_best:
            progress.best = value
            progress.stale = progress.since_decay = 0
            self._keep_best()
        elif growth is None:
            progress.stale += 1
            progress.since_decay += 1
            if progress.since_decay > settings.schedule.patience:
                progress.rate *= settings.schedule.factor
                progress.since_decay = 0
        distance = distance_from_unitary(self.model)
        with torch.no_grad():
            penalty = unitary_penalty(self.model).item() if settings.penalty else None
        if self._metrics is not None:
            self._metrics.write(
                step=progress.step,
                epoch=self._epochs(),
                seconds=seconds,
                loss=self._take_loss(),
                penalty=penalty,
                valid=value,
                rate=self._rate() * settings.optimizer.lr,
                distance=distance,
            )
        self.report(Event(progress, penalty, None, value, is_best, distance))
        if growth is not None and stalled(settings.growth, self.task.measure, progress, value):
            self._grow(growth, seconds)

    def _keep_best(self) -> None:
        """The weights as they are, averaged if that is asked for, are the best ones."""
        self.progress.best_step = self.progress.step
        self.best_model_settings = self.model_settings
        with self._averaged():
            self.best_weights = {name: t.clone() for name, t in self.model.state_dict().items()}

    def _averaged(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.average is None else self.average.applied()

    def _grow(self, step: GrowthStep, seconds: float) -> None:
        grown = grow(step, self.model, self.optimizer)
        self.model_settings = {**self.model_settings, **grown.settings}
        # New terms of a sum are drawn at random, and each process has its own chance.
        self.processes.weights_of_first(self.model)
        if self.average is not None:
            self.average = WeightAverage(self.model, self.settings.average)
        if self._metrics is not None:
            self._metrics.write(
                step=self.progress.step, epoch=self._epochs(), seconds=seconds, grown=True, **asdict(grown)
            )
        self.report(Event(self.progress, grown.penalty, grown=grown))

    def _expect_finite(self) -> None:
        if not all(bool(tensor.isfinite().all()) for tensor in self.model.state_dict().values()):
            raise DivergedError(f"the weights are no longer finite after step {self.progress.step}")

    def _validation_due(self) -> bool:
        progress, every = self.progress, self.settings.evaluation.every
        if progress.step == progress.validated or progress.step == 0:
            return False
        return progress.step % every == 0 if every else progress.index == 0

    def _stopped(self) -> str:
        progress, settings = self.progress, self.settings
        if settings.schedule.stop_after and progress.stale >= settings.schedule.stop_after:
            return "early"
        return "budget" if self._spent() >= 1 else ""

    def _spent(self) -> float:
        """The fraction of the budget that is spent, by the bound that will be reached first."""
        progress, settings = self.progress, self.settings
        return max(
            progress.step / settings.steps if settings.steps else 0.0,
            self._epochs() / settings.epochs if settings.epochs else 0.0,
            progress.seconds / (60 * settings.minutes) if settings.minutes else 0.0,
        )

    def _epoch_batches(self) -> Batches:
        settings, epoch = self.settings, self.progress.epoch
        if self._batches is None or self._batches[0] != epoch:
            batches = self.task.train_batches(settings.batch_size, epoch=epoch, seed=settings.seed)
            self._batches = (epoch, batches)
        return self._batches[1]

    def _epochs(self) -> float:
        return self.progress.epoch + self.progress.index / len(self._epoch_batches())

    def _take_loss(self) -> float | None:
        progress = self.progress
        mean = progress.loss_sum / progress.loss_count if progress.loss_count else None
        progress.loss_sum, progress.loss_count = 0.0, 0
        return mean

    def _rate(self) -> float:
        """What the settings' rates are multiplied by at this step."""
        if self.settings.schedule.shape == "constant":
            return self.progress.rate
        return self.progress.rate * (1 + math.cos(math.pi * min(self._spent(), 1.0))) / 2

    def _set_rates(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._rate()


def _plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as it is read back from JSON, with lists instead of tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(mapping))
    return plain
