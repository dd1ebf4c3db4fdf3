"""Growth: the recurrent matrix gets more parameters, and keeps its function, when validation stalls."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from kru.linalg.factors import Shapes, product_text
from kru.matrices import KroneckerMatrix, RecurrentMatrix, UnitaryKroneckerMatrix
from kru.nn.recurrent import Recurrent
from kru.optim.parameters import parameter_count
from kru.training.checkpoint import Progress
from kru.training.settings import GrowthSettings
from kru.training.task import Measure


@dataclass(frozen=True)
class GrowthStep:
    """A step of growth to come.

    Attributes:
        merges: positions for `merge`, one after the other.
        terms: a number of terms for `raise_rank`.
    """

    merges: tuple[int, ...] = ()
    terms: int = 0


@dataclass(frozen=True)
class Grown:
    """A step of growth that was taken.

    Attributes:
        factors: the sizes of the factors after it.
        rank: of how many products W is the sum.
        recurrent: the number of recurrent parameters after it.
        penalty_before, penalty: the unitary penalty before and after. The function is the same, the penalty
            isn't.
    """

    factors: tuple[int, ...]
    rank: int
    recurrent: int
    penalty_before: float
    penalty: float

    @property
    def settings(self) -> dict[str, Any]:
        """What changes in the model's settings."""
        return {"factors": list(self.factors), "rank": self.rank}

    def __str__(self) -> str:
        return f"{product_text(self.factors, self.rank)}, {self.recurrent:,} recurrent parameters"


def expect_growable(config: GrowthSettings, model: nn.Module) -> None:
    """Raise if settings ask for growth that can't happen."""
    if not config.max_parameters:
        return
    matrix = _growing(model).matrix()
    if not isinstance(matrix, KroneckerMatrix | UnitaryKroneckerMatrix) or len(matrix.shapes) < 2:
        raise ValueError(
            f"growth: expected a model with two Kronecker factors at least, got {product_text(matrix.shapes)}; "
            "choose model.kind kru, kru-lstm or kru-gru, and more model.factors"
        )
    if config.by == "rank" and matrix.constraint == "exact":
        raise ValueError(
            "growth.by: expected merge with model.constraint exact, got rank: a sum of unitary matrices is not unitary"
        )
    if next_step(config, matrix) is None:
        shapes = [matrix.shapes] if config.by == "rank" else _merged_once(matrix.shapes)
        count = min(map(matrix.parameters_with, shapes))
        least = count * (matrix.rank + 1) // matrix.rank if config.by == "rank" else count
        raise ValueError(
            f"growth.max-parameters: expected at least the {least} recurrent parameters after one step, "
            f"got {config.max_parameters}"
        )


def next_growth(config: GrowthSettings, model: nn.Module) -> GrowthStep | None:
    """`next_step` of the model's recurrent matrix."""
    return next_step(config, _growing(model).matrix()) if config.max_parameters else None


def _growing(model: nn.Module) -> Recurrent:
    """The layer that grows."""
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if len(layers) != 1 or layers[0].num_layers > 1 or layers[0].bidirectional:
        raise ValueError("growth: expected a model with one recurrent layer of this library in one direction")
    return layers[0]


def next_step(config: GrowthSettings, matrix: RecurrentMatrix) -> GrowthStep | None:
    """What comes next: merges or terms until the matrix has `config.factor` times its parameters, but not more than
    `config.max_parameters`. None when that allows none."""
    if not config.max_parameters:
        return None
    if config.by == "merge":
        merges = _next_merges(config, matrix)
        return GrowthStep(merges=merges) if merges else None
    each = matrix.parameters_with(matrix.shapes) // matrix.rank
    wanted = max(matrix.rank + 1, math.ceil(config.factor * matrix.rank))
    rank = min(wanted, config.max_parameters // each)
    return GrowthStep(terms=rank - matrix.rank) if rank > matrix.rank else None


def _next_merges(config: GrowthSettings, matrix: RecurrentMatrix) -> tuple[int, ...]:
    """Each merge is the one that adds the fewest parameters (the first of several), so that factors grow evenly."""
    merges: list[int] = []
    shapes = matrix.shapes
    wanted = config.factor * matrix.parameters_with(shapes)
    while len(shapes) > 1 and (not merges or matrix.parameters_with(shapes) < wanted):
        candidates = _merged_once(shapes)
        counts = [matrix.parameters_with(candidate) for candidate in candidates]
        i = counts.index(min(counts))
        if counts[i] > config.max_parameters:
            break
        merges.append(i)
        shapes = candidates[i]
    return tuple(merges)


def stalled(config: GrowthSettings, measure: Measure, progress: Progress, value: float) -> bool:
    """Whether the measure has stalled, after a validation that gave `value`; keeps count in `progress`.

    It stalls when more than `config.patience` validations in a row were not better, by the fraction
    `config.gain`, than the last one that was.
    """
    best = progress.growth_best
    if best is None or measure.improves(value, _raised(best, config.gain, measure)):
        progress.growth_best, progress.growth_stale = value, 0
        return False
    progress.growth_stale += 1
    if progress.growth_stale <= config.patience:
        return False
    progress.growth_stale = 0
    return True


def grow(step: GrowthStep, model: nn.Module, optimizer: torch.optim.Optimizer) -> Grown:
    """Take a step of growth; the optimiser follows."""
    layer = _growing(model)
    changes = [layer.merge(i, optimizer=optimizer) for i in step.merges]
    if step.terms:
        changes.append(layer.raise_rank(step.terms, optimizer=optimizer))
    return Grown(
        tuple(rows for rows, _ in layer.matrix().shapes),
        layer.matrix().rank,
        parameter_count(model).recurrent,
        changes[0].penalty_before or 0.0,
        changes[-1].penalty or 0.0,
    )


def _merged_once(shapes: Shapes) -> list[Shapes]:
    """The shapes after each merge of two neighbours."""
    return [
        (*shapes[:i], (p * r, q * s), *shapes[i + 2 :]) for i, ((p, q), (r, s)) in enumerate(pairwise(shapes))
    ]


def _raised(best: float, gain: float, measure: Measure) -> float:
    return best - gain * abs(best) if measure.lower_is_better else best + gain * abs(best)
