"""Growth: the recurrent matrix gets more parameters, and keeps its function, when validation stalls."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from kru.lab.recipes.settings import Recipe
from kru.lab.tasks import Measure
from kru.linalg.factors import Shapes, product_text
from kru.matrices import KroneckerMatrix, RecurrentMatrix, UnitaryKroneckerMatrix
from kru.nn.kinds import ModelSettings
from kru.nn.model import SequenceModel, Sizes, build_model
from kru.optim.parameters import parameter_count
from kru.training.checkpoint import Progress
from kru.training.settings import GrowthSettings


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

    def __str__(self) -> str:
        return f"{product_text(self.factors, self.rank)}, {self.recurrent:,} recurrent parameters"


def expect_growable(config: GrowthSettings, model: SequenceModel) -> None:
    """Raise if a recipe asks for growth that can't happen."""
    if not config.max_parameters:
        return
    matrix = model.layer.matrix()
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


def grow(step: GrowthStep, model: SequenceModel, optimizer: torch.optim.Optimizer) -> Grown:
    """Take a step of growth; the optimiser follows."""
    layer = model.layer
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


def grown_settings(recipe: Recipe, weights: Mapping[str, Tensor]) -> ModelSettings:
    """The recipe's model with the factors and the rank that weights of it have, which may have grown."""
    if not recipe.growth.max_parameters:
        return recipe.model
    name = "layer.recurrent_l0." + ("base" if recipe.model.constraint == "exact" else "factor")
    count = sum(key.startswith(f"{name}_") for key in weights)
    factors = [weights[key] for key in (f"{name}_{f}" for f in range(count)) if key in weights]
    # One dimension for the parts of a complex factor or for the gates, and one more for the terms of a sum.
    usual = 2 if recipe.model.kind == "kru" and recipe.model.field == "real" else 3
    # What is no factor fits no model, which loading it will say.
    if not factors or any(factor.dim() < usual for factor in factors):
        return recipe.model
    rank = factors[0].shape[0] if factors[0].dim() > usual else 1
    return recipe.model.changed(factors=tuple(factor.shape[-1] for factor in factors), rank=rank)


def model_of(recipe: Recipe, sizes: Sizes, weights: Mapping[str, Tensor]) -> SequenceModel:
    """The model that has these weights, grown or not."""
    model = build_model(grown_settings(recipe, weights), sizes)
    model.load_state_dict(weights)
    return model


def _merged_once(shapes: Shapes) -> list[Shapes]:
    """The shapes after each merge of two neighbours."""
    return [
        (*shapes[:i], (p * r, q * s), *shapes[i + 2 :]) for i, ((p, q), (r, s)) in enumerate(pairwise(shapes))
    ]


def _raised(best: float, gain: float, measure: Measure) -> float:
    return best - gain * abs(best) if measure.lower_is_better else best + gain * abs(best)
