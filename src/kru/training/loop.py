"""The training loop: steps, validations, the schedule, and checkpoints from which it goes on exactly."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from kru.lab.recipes.settings import Recipe
from kru.lab.tasks import Batches, Task
from kru.nn.kinds import ModelSettings
from kru.nn.model import SequenceModel, Sizes, seeded_model
from kru.nn.spectrum import spectrum
from kru.nn.states import State
from kru.optim import optimizer
from kru.optim.penalty import unitary_penalty
from kru.training.allocator import keep_freed_memory
from kru.training.checkpoint import Checkpoint, Progress
from kru.training.distributed import Processes
from kru.training.evaluate import evaluate
from kru.training.growth import Grown, GrowthStep, expect_growable, grow, grown_settings, next_step, stalled
from kru.training.interrupt import Interrupted
from kru.training.metrics import Metrics
from kru.training.task import SPLITS

LOG_EVERY = 20
"""Steps between two lines of training loss in metrics.jsonl."""


class DivergedError(Exception):
    """The loss or the weights are no longer finite."""


@dataclass(frozen=True)
class Event:
    """What the loop reports: after each step with `loss`, after each validation with `valid`, after growth
    with `grown`."""

    progress: Progress
    penalty: float | None
    loss: float | None = None
    valid: float | None = None
    is_best: bool = False
    distance: float | None = None
    grown: Grown | None = None


class Trainer:
    """One run of a recipe: `run` trains until the budget is spent.

    Everything that decides what comes next is in a checkpoint or a pure function of it, so a run that goes on
    from one takes the same steps, bit for bit, as one that was never interrupted (with the same number of
    threads, and a budget in steps or epochs).

    Args:
        source: the recipe's name or path, kept in checkpoints.
        folder: where metrics.jsonl and checkpoint.safetensors are; None to keep no record.
        checkpoint_seconds: how much time may lie between two checkpoints.
        start: weights to begin with in place of random ones.
        command: what the result names as its command, where that is not `kru train`.
        report: called with each `Event`.
        clock: what seconds are counted by; time.process_time where other processes take turns with this one.
        check: called before each step and each batch of a validation; it may raise `Interrupted`. With several
            processes, only before steps, and in all of them alike.
        processes: those that train together, each with its part of every batch; only the first may have a
            folder.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        *,
        source: str = "",
        folder: Path | None = None,
        checkpoint_seconds: float = 30.0,
        start: Mapping[str, Tensor] | None = None,
        command: str = "",
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[Event], None] = lambda event: None,
        check: Callable[[], None] = lambda: None,
        processes: Processes | None = None,
    ) -> None:
        self.recipe = recipe
        self.task = task
        self.source = source
        self.command = command
        self.folder = folder
        self.checkpoint_seconds = checkpoint_seconds
        self._clock = clock
        self.report = report
        self.check = check
        self.processes = processes or Processes()
        if recipe.batch_size < self.processes.count:
            raise ValueError(
                f"batch-size: expected at least a sequence for each of the {self.processes.count} processes, got "
                f"{recipe.batch_size}"
            )
        self.progress = Progress()
        self.sizes = Sizes(task.input_size, task.output_size, task.last_only)
        self._begin(recipe.model)
        if start is not None:
            self.model.load_state_dict(start)
        expect_growable(recipe.growth, self.model)
        self.best_weights: dict[str, Tensor] = {}
        self._carried: State | None = None
        self._metrics: Metrics | None = None
        self._batches: tuple[int, Batches] | None = None
        self._written = -math.inf

    def _begin(self, config: ModelSettings) -> None:
        """The model and its optimiser, as at the beginning of a run."""
        self.model: SequenceModel = seeded_model(config, self.sizes, self.recipe.seed)
        self.model.to(self.processes.device)
        rates = self.recipe.optimizer
        options: dict[str, float] = {"alpha": rates.decay} if rates.name == "rmsprop" else {}
        # Without a rate of their own they stay in the group of the others: checkpoints name states by place.
        if rates.input_scale != 1:
            options["input_lr"] = rates.lr * rates.input_scale
        self.optimizer = optimizer(
            self.model, rates.name, rates.lr, rates.lr * rates.recurrent_scale, **options
        )
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the same recipe; only the budget may differ."""
        self.progress = replace(checkpoint.progress, stopped="")
        config = grown_settings(self.recipe, checkpoint.weights)
        if config != self.recipe.model:
            self._begin(config)
        self.model.load_state_dict(checkpoint.weights)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": checkpoint.optimizer, "param_groups": groups})
        self.best_weights = checkpoint.best_weights
        self._carried = self.processes.own_columns(checkpoint.carried)
        torch.set_rng_state(checkpoint.generator)

    def run(self) -> str:
        """Train until the budget is spent or the schedule says stop: "budget" or "early".

        From here on the process keeps the memory that it frees (`keep_freed_memory`).

        Raises:
            DivergedError: the last checkpoint and the best weights are those from before.
        """
        if self.folder is not None:
            self._metrics = Metrics(self.folder / "metrics.jsonl", self.progress.metrics_bytes)
        self.processes.weights_of_first(self.model)
        keep_freed_memory()
        try:
            return self._run()
        finally:
            if self._metrics is not None:
                self._metrics.close()

    def _run(self) -> str:
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
        """Write a checkpoint, in place of the one before."""
        self._written = self.progress.seconds
        self._expect_finite()
        carried = self.processes.all_columns(self._carried, self.recipe.batch_size)
        if self.folder is None or self._metrics is None:
            return
        self.progress.metrics_bytes = self._metrics.sync()
        Checkpoint(
            self.recipe,
            self.source,
            self.progress,
            self.model.state_dict(),
            self.best_weights,
            self.optimizer.state_dict()["state"],
            carried,
            data=self.data,
        ).save(self.folder / "checkpoint.safetensors")

    @property
    def data(self) -> dict[str, float]:
        """What a checkpoint knows of the data."""
        return {**{split: self.task.size(split) for split in SPLITS}, "baseline": self.task.baseline}

    def _step(self, seconds: float) -> None:
        recipe, progress = self.recipe, self.progress
        batch, weight = self.processes.share(self._epoch_batches()[progress.index], self.task)
        self._set_rates()
        self.processes.own_chance(recipe.seed, progress.step)
        loss = torch.zeros((), device=self.processes.device, requires_grad=True)
        state: State | None = None
        if batch is not None:
            outputs, state = self.model(batch.inputs, self._carried if batch.carry else None, batch.lengths)
            loss = weight * self.task.loss(outputs, batch)
        penalty = None
        objective = loss
        if recipe.penalty:
            penalty = unitary_penalty(self.model)
            objective = loss + recipe.penalty / self.processes.count * penalty
        self.optimizer.zero_grad(set_to_none=True)
        objective.backward()  # type: ignore[no-untyped-call]
        value = self.processes.sum_gradients(list(self.model.parameters()), loss)
        if not math.isfinite(value):
            raise DivergedError(f"the loss is {value} at step {progress.step + 1}")
        if recipe.optimizer.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.optimizer.clip)
        self.optimizer.step()
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
        progress, recipe = self.progress, self.recipe
        config = recipe.evaluation
        # An accuracy would not tell: outputs that are not numbers have a largest one too.
        self._expect_finite()
        value = evaluate(
            self.model,
            self.task,
            "valid",
            config.batch_size,
            sequences=config.sequences,
            between=self.check if self.processes.count == 1 else lambda: None,
            processes=self.processes,
        )
        progress.validated = progress.step
        growth = next_step(recipe.growth, self.model.layer.matrix())
        is_best = math.isfinite(value) and (
            progress.best is None or self.task.measure.improves(value, progress.best)
        )
        if is_best:
            progress.best, progress.best_step = value, progress.step
            progress.stale = progress.since_decay = 0
            self.best_weights = {name: t.clone() for name, t in self.model.state_dict().items()}
        elif growth is None:
            progress.stale += 1
            progress.since_decay += 1
            if progress.since_decay > recipe.schedule.patience:
                progress.rate *= recipe.schedule.factor
                progress.since_decay = 0
        distance = distance_from_unitary(self.model)
        with torch.no_grad():
            penalty = unitary_penalty(self.model).item() if recipe.penalty else None
        if self._metrics is not None:
            self._metrics.write(
                step=progress.step,
                epoch=self._epochs(),
                seconds=seconds,
                loss=self._take_loss(),
                penalty=penalty,
                valid=value,
                rate=self._rate() * recipe.optimizer.lr,
                distance=distance,
            )
        self.report(Event(progress, penalty, None, value, is_best, distance))
        if growth is not None and stalled(recipe.growth, self.task.measure, progress, value):
            self._grow(growth, seconds)

    def _grow(self, step: GrowthStep, seconds: float) -> None:
        grown = grow(step, self.model, self.optimizer)
        # New terms of a sum are drawn at random, and each process has its own chance.
        self.processes.weights_of_first(self.model)
        if self._metrics is not None:
            self._metrics.write(
                step=self.progress.step, epoch=self._epochs(), seconds=seconds, grown=True, **asdict(grown)
            )
        self.report(Event(self.progress, grown.penalty, grown=grown))

    def _expect_finite(self) -> None:
        if not all(bool(tensor.isfinite().all()) for tensor in self.model.state_dict().values()):
            raise DivergedError(f"the weights are no longer finite after step {self.progress.step}")

    def _validation_due(self) -> bool:
        progress, every = self.progress, self.recipe.evaluation.every
        if progress.step == progress.validated or progress.step == 0:
            return False
        return progress.step % every == 0 if every else progress.index == 0

    def _stopped(self) -> str:
        progress, recipe = self.progress, self.recipe
        if recipe.schedule.stop_after and progress.stale >= recipe.schedule.stop_after:
            return "early"
        return "budget" if self._spent() >= 1 else ""

    def _spent(self) -> float:
        """The fraction of the budget that is spent, by the bound that will be reached first."""
        progress, recipe = self.progress, self.recipe
        return max(
            progress.step / recipe.steps if recipe.steps else 0.0,
            self._epochs() / recipe.epochs if recipe.epochs else 0.0,
            progress.seconds / (60 * recipe.minutes) if recipe.minutes else 0.0,
        )

    def _epoch_batches(self) -> Batches:
        recipe, epoch = self.recipe, self.progress.epoch
        if self._batches is None or self._batches[0] != epoch:
            batches = self.task.train_batches(recipe.batch_size, epoch=epoch, seed=recipe.seed)
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
        """What the recipe's rates are multiplied by at this step."""
        if self.recipe.schedule.shape == "constant":
            return self.progress.rate
        return self.progress.rate * (1 + math.cos(math.pi * min(self._spent(), 1.0))) / 2

    def _set_rates(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._rate()


def distance_from_unitary(model: SequenceModel) -> float | None:
    """max |sigma - 1| over the recurrent matrices that are meant to be unitary; None if none is.

    Nor for a sum of several products of more than 256 units, whose dense matrix would take longer than a validation.
    """
    matrix = model.layer.matrix()
    if matrix.constraint == "none" or not matrix.is_square:
        return None
    if matrix.rank > 1 and model.layer.hidden_size > 256:
        return None
    with torch.no_grad():
        gates = (matrix.dense_factors(gate) for gate in range(matrix.gates))
        return max(spectrum(factors, dense=True).distance_from_unitary for factors in gates)
