"""What is shown of a run while it runs: a bar, a line for each validation, TensorBoard events on request."""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm import tqdm

from kru.training.settings import TrainingSettings
from kru.training.task import Task
from kru.training.trainer import Event, Trainer

EVERY = 30.0
"""Seconds between two lines about validations where stderr is not a terminal."""


class Display:
    """Shows events on stderr, and writes them for TensorBoard if `folder` is given.

    On a terminal every validation has a line, above the bar. Elsewhere, such as in a log file, the first one has, then
    one every half minute, and the last one.
    """

    def __init__(
        self,
        name: str,
        settings: TrainingSettings,
        task: Task,
        *,
        quiet: bool,
        folder: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._shown = -math.inf
        self._held = ""
        self._name = name
        self._settings = settings
        self._task = task
        self._quiet = quiet
        self._valid = ""
        self._begun: tuple[int, float] | None = None
        self._losses: list[float] = []
        self._events: Any = _events(folder) if folder is not None else None
        epoch = len(task.train_batches(settings.batch_size, epoch=0, seed=settings.seed))
        bounds = [bound for bound in (settings.steps, settings.epochs * epoch) if bound]
        self._bound = min(bounds) if bounds else None
        self._bar = tqdm(
            total=self._bound,
            desc=name,
            unit="step",
            dynamic_ncols=True,
            smoothing=0.1,
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._release()
        self._bar.close()
        if self._events is not None:
            self._events.close()

    def resumed(self, trainer: Trainer) -> None:
        """Say that training resumes, and from which step."""
        step = trainer.progress.step
        self._bar.initial = self._bar.n = self._bar.last_print_n = step
        self._write(f"{self._name}: resuming from step {step:,}")

    def show(self, event: Event) -> None:
        progress = event.progress
        if self._begun is None:
            self._begun = (progress.step - 1, progress.seconds)
        if event.grown is not None:
            penalties = f"{event.grown.penalty_before:.2g} to {event.grown.penalty:.2g}"
            self._write(f"{self._name}: grown to {event.grown}, penalty {penalties}")
            return
        if event.loss is None:
            self._validated(event)
            return
        self._losses.append(event.loss)
        if self._events is not None and progress.step % 20 == 0:
            self._events.add_scalar("loss", event.loss, progress.step)
        if self._bar.disable:
            return
        if self._settings.minutes and progress.seconds:
            expected = round(progress.step * 60 * self._settings.minutes / progress.seconds)
            self._bar.total = min(expected, self._bound or expected)
        shown = f"loss {event.loss:.4g}{self._valid}"
        if event.penalty is not None:
            shown += f", penalty {event.penalty:.2g}"
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update(progress.step - self._bar.n)

    def _validated(self, event: Event) -> None:
        progress, name = event.progress, self._task.measure.name
        self._valid = f", valid {event.valid:.4g}"
        if self._events is not None:
            self._events.add_scalar(f"valid {name}", event.valid, progress.step)
            if event.distance is not None:
                self._events.add_scalar("distance from unitary", event.distance, progress.step)
        assert self._begun is not None
        steps, seconds = progress.step - self._begun[0], progress.seconds - self._begun[1]
        parts = [
            f"step {progress.step:,}",
            f"epoch {progress.epoch}",
            f"loss {fmean(self._losses or [math.nan]):.4g}",
            f"valid {name} {event.valid:.4g}{' (best)' if event.is_best else ''}",
        ]
        if event.penalty is not None:
            parts.append(f"penalty {event.penalty:.2g}")
        if seconds > 0:
            parts.append(f"{steps / seconds:.3g} steps/s")
        self._losses.clear()
        self._held = f"{self._name}: " + ", ".join(parts)
        if not self._bar.disable or self._clock() - self._shown >= EVERY:
            self._release()

    def _release(self) -> None:
        """Show the last validation, if it was not shown yet."""
        if self._held:
            self._write(self._held)
            self._held, self._shown = "", self._clock()

    def _write(self, line: str) -> None:
        if not self._quiet:
            tqdm.write(line, file=sys.stderr)


def _events(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("tensorboard: not installed; run pip install 'kru[tensorboard]'") from None
    return SummaryWriter(str(folder / "tensorboard"))
