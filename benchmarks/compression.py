"""Trained LSTMs with their recurrent matrices compressed 10 to 50 times, before and after further training.

    python benchmarks/compression.py jsb        # or ptb; --data-dir DIR, else KRU_DATA

For each size: sums of Kronecker products and, within the same limit, matrices of low rank; their test measure when the
matrices themselves are fitted, when their products with the states that occur are, and after some further epochs; and
the same architecture trained from scratch. Training of the dense model is continued as well. The record is
results/studies/compress/TASK-seedN.json, of which `kru results --out` makes a section and the figure compress.png in
results/studies. An interrupted run can be resumed.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kru.lab.compressed import CompressedRun, compress_run, fine_tuning
from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.recipes.settings import Recipe
from kru.lab.report.compression import draw_compression
from kru.lab.result import commit, machine, read_weights, write_result
from kru.lab.run import RunOptions, train
from kru.lab.tasks import Task
from kru.nn.model import SequenceModel
from kru.training.evaluate import evaluate
from kru.training.folder import WEIGHTS

RATIOS = (10, 25, 50)
"""How many times fewer parameters than the dense matrices have, at least."""
BATCHES = 20
"""Training batches for the states on which errors count."""


@dataclass(frozen=True)
class Case:
    """What is compressed, and how long everything is trained.

    Attributes:
        source: the recipe.
        units: in place of the recipe's.
        epochs: of the dense model, and of compressed ones from scratch.
        further: epochs after the compression.
        rate: of that training, as a fraction of the recipe's.
        factors: Kronecker factors to try.
        scratch: the ratios at which the same architecture is trained from scratch.
    """

    source: str
    units: int
    epochs: int
    further: int
    rate: float
    factors: tuple[tuple[int, ...], ...]
    scratch: tuple[int, ...]


CASES = {
    "jsb": Case("jsb-lstm", 128, 50, 10, 0.2, ((16, 8), (4, 4, 8)), RATIOS),
    # No third factor here: a tenth of the parameters would be 26 terms of 5 x 5 x 6, and each costs its time.
    "ptb": Case("ptb-small-lstm", 150, 2, 1, 1.0, ((15, 10),), (25,)),
}


class Experiment:
    """One case with one seed: the dense model, and everything that is made of it."""

    def __init__(self, name: str, seed: int, runs: Path, data_dir: Path | None) -> None:
        self.name, self.case, self.runs, self.data_dir = name, CASES[name], runs, data_dir
        recipe = replace(load_recipe(self.case.source), seed=seed)
        recipe = replace(recipe, model=replace(recipe.model, hidden_size=self.case.units))
        self.recipe = with_budget(recipe, epochs=self.case.epochs)
        self.task: Task = recipe.task.load(data_dir)
        self.command = f"python benchmarks/compression.py {name} --seed {seed}"

    def run(self) -> dict[str, Any]:
        dense = self._train("dense", self.recipe)
        _, model = read_weights(self._folder("dense") / WEIGHTS)
        longer = self._train("dense-further", self._further(self.recipe), model)
        rows = []
        for ratio in RATIOS:
            for factors in (*self.case.factors, None):
                rows.append(self._row(model, ratio, factors))
                print(f"{self.name} / {ratio}: {_summary(rows[-1])}", file=sys.stderr, flush=True)
        return {
            "task": self.name,
            "command": self.command,
            "seed": self.recipe.seed,
            "commit": commit(),
            "machine": machine(),
            "measure": self.task.measure.name,
            "units": self.case.units,
            "dense": dense,
            "dense_further": longer,
            "rows": rows,
            "curve": dense.pop("curve"),
        }

    def _row(self, model: SequenceModel, ratio: int, factors: Sequence[int] | None) -> dict[str, Any]:
        """One size of one kind; factors None is low rank, with at most as many parameters."""
        units = self.case.units
        shapes: Sequence[int | tuple[int, int]] = factors or [(units, 1), (1, units)]
        each = sum(size * size for size in factors) if factors else 2 * units
        rank = max(1, units * units // ratio // each)
        label = "x".join(map(str, factors)) if factors else "low-rank"
        row: dict[str, Any] = {"ratio": ratio, "kind": label, "rank": rank}
        for fit, batches in (("matrix", 0), ("states", BATCHES)):
            done = self._compressed(model, shapes, rank, batches)
            row["parameters"] = done.report.compressed
            row[fit] = {
                "errors": [round(matrix.error, 4) for matrix in done.report.matrices],
                "test": round(self._test(done.model), 5),
            }
        row["further"] = self._train(f"{label}-{ratio}-further", self._further(done.recipe), done.model)
        if ratio in self.case.scratch:
            scratch = replace(self.recipe, model=done.recipe.model)
            row["scratch"] = self._train(f"{label}-{ratio}-scratch", scratch)
        return row

    def _compressed(
        self, model: SequenceModel, shapes: Sequence[int | tuple[int, int]], rank: int, batches: int
    ) -> CompressedRun:
        return compress_run(self.recipe, model, self.task, factors=shapes, rank=rank, batches=batches)

    def _further(self, recipe: Recipe) -> Recipe:
        return fine_tuning(recipe, self.case.rate, epochs=self.case.further)

    def _test(self, model: SequenceModel) -> float:
        return evaluate(model, self.task, "test", self.recipe.evaluation.batch_size)

    def _train(self, name: str, recipe: Recipe, start: SequenceModel | None = None) -> dict[str, Any]:
        """What a run of its own folder gave, in short; seconds are those of the CPU, as others may use it too."""
        result = train(
            recipe,
            self.case.source,
            RunOptions(self._folder(name), self.data_dir, quiet=True, cpu_time=True),
            start=None if start is None else start.state_dict(),
            command=self.command,
        )
        short = {key: result[key] for key in ("valid", "test", "parameters", "epochs", "steps")}
        curve = [[point["step"], point["valid"]] for point in result["curve"] if "valid" in point]
        return short | {"cpu_seconds": result["wall_seconds"], "curve": curve}

    def _folder(self, name: str) -> Path:
        return self.runs / f"{self.name}-seed{self.recipe.seed}" / name


def _summary(row: dict[str, Any]) -> str:
    scratch = f", from scratch {row['scratch']['test']:.4f}" if "scratch" in row else ""
    return (
        f"{row['kind']} rank {row['rank']}, {row['parameters']} parameters: matrix {row['matrix']['test']:.4f}, "
        f"states {row['states']['test']:.4f}, fine-tuned {row['further']['test']:.4f}{scratch}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/compress"))
    parser.add_argument("--results", type=Path, default=Path("results/studies/compress"))
    options = parser.parse_args()
    record = Experiment(options.task, options.seed, options.runs, options.data_dir).run()
    write_result(options.results / f"{options.task}-seed{options.seed}.json", record)
    for path in draw_compression(options.results):
        print(f"figure: {path}")


if __name__ == "__main__":
    main()
