"""`make demo`: KRU and the LSTM on copy memory, side by side, in about two minutes."""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from kru.lab.recipes.settings import Recipe
from kru.lab.report.style import COLOURS, new_figure, save_figure
from kru.lab.tasks import CopyMemory, Task
from kru.lab.trainer import RecipeTrainer
from kru.nn.kinds import ModelSettings, model_settings
from kru.optim.parameters import parameter_count
from kru.training.evaluate import evaluate
from kru.training.settings import EvaluationSettings
from kru.training.trainer import Event

GAP = 300
STEPS = 1000
MODELS = {
    "KRU": model_settings("kru", hidden_size=128, train_recurrent=False),
    "LSTM": model_settings("lstm", hidden_size=128),
}


@dataclass(frozen=True)
class Outcome:
    """What one model reached: validation measures by step, and the measure on the test data."""

    steps: list[int]
    valid: list[float]
    test: float
    parameters: int
    recurrent: int
    seconds: float


def main(arguments: list[str] | None = None) -> None:
    """Train both, print the table, draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m kru.lab.demo", description=main.__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps of 20 sequences each")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the figure")
    options = parser.parse_args(arguments)
    task = CopyMemory(T=GAP).load()
    print(
        f"Copy memory: ten symbols, then {GAP} steps of nothing, then recall them. A model without memory "
        f"has a cross entropy of {task.baseline:.4f}; perfect recall has 0.\n"
    )
    outcomes = {name: _train(name, model, task, options.steps) for name, model in MODELS.items()}
    print("\n" + table(outcomes, task.baseline) + "\n")
    for path in draw(outcomes, task.baseline, options.out):
        print(f"figure: {path}")


def _train(name: str, model: ModelSettings, task: Task, steps: int) -> Outcome:
    recipe = Recipe(
        task=CopyMemory(T=GAP),
        model=model,
        evaluation=EvaluationSettings(every=max(1, steps // 20), sequences=200),
        steps=steps,
    )
    done: list[int] = []
    valid: list[float] = []
    interval = 0.1 if sys.stderr.isatty() else 10.0
    with tqdm(total=steps, desc=f"{name:4}", unit="step", mininterval=interval, maxinterval=10.0) as bar:

        def show(event: Event) -> None:
            if event.valid is None:
                bar.update()
                return
            done.append(event.progress.step)
            valid.append(event.valid)
            bar.set_postfix_str(f"cross entropy {event.valid:.4f}", refresh=False)

        trainer = RecipeTrainer(recipe, task, report=show)
        begun = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - begun
    trainer.model.load_state_dict(trainer.best_weights)
    test = evaluate(trainer.model, task, "test", 100, sequences=1000)
    count = parameter_count(trainer.model)
    return Outcome(done, valid, test, count.total, count.recurrent, seconds)


def table(outcomes: dict[str, Outcome], baseline: float) -> str:
    """What each model reached, in plain text."""
    lines = [
        f"{'':8}{'parameters':>12}{'recurrent':>12}{'cross entropy':>16}{'remembers':>12}{'seconds':>10}"
    ]
    for name, outcome in outcomes.items():
        remembered = max(0.0, 1 - outcome.test / baseline)
        lines.append(
            f"{name:8}{outcome.parameters:>12,}{outcome.recurrent:>12,}{outcome.test:>16.5f}"
            f"{remembered:>12.1%}{outcome.seconds:>10.0f}"
        )
    return "\n".join([*lines, f"{'chance':8}{'':24}{baseline:>16.5f}{0:>12.1%}"])


def draw(outcomes: dict[str, Outcome], baseline: float, folder: Path) -> list[Path]:
    """The learning curves, as PNG and SVG."""
    figure, axes = new_figure(1)
    axes[0].axhline(baseline, color="0.4", linestyle=":", label="no memory")
    for name, outcome in outcomes.items():
        axes[0].plot(outcome.steps, outcome.valid, color=COLOURS[name.lower()], label=name, marker=".")
    axes[0].set(
        xlabel="training steps of 20 sequences",
        ylabel="validation cross entropy",
        yscale="log",
        title=f"Copy memory over {GAP} steps",
    )
    axes[0].legend()
    return save_figure(figure, folder / "demo")


if __name__ == "__main__":
    main()
