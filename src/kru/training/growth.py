"""Growth: the recurrent matrix gets more parameters, and keeps its function, when validation stalls."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from kru.factors import Shapes
from kru.matrices import KroneckerMatrix, RecurrentMatrix, UnitaryKroneckerMatrix
from kru.parameters import parameter_count
from kru.tasks import Measure
from kru.training.checkpoint import Progress
from kru.training.config import GrowthConfig, ModelConfig, Recipe
from kru.training.model import Model, Sizes, build_model


@dataclass(frozen=True)
class Grown:
    """A step of growth.

    Attributes:
        factors: the sizes of the factors after it.
        recurrent: the number of recurrent parameters after it.
        penalty_before, penalty: the unitary penalty before and after. The function is the same, the penalty
            isn't.
    """

    factors: tuple[int, ...]
    recurrent: int
    penalty_before: float
    penalty: float

    def __str__(self) -> str:
        product = " ⊗ ".join(map(str, self.factors))
        return f"{product}, {self.recurrent:,} recurrent parameters"


def expect_growable(config: GrowthConfig, model: Model) -> None:
    """Raise if a recipe asks for growth that can't happen."""
    if not config.max_parameters:
        return
    matrix = model.layer.matrix()
    if not isinstance(matrix, KroneckerMatrix | UnitaryKroneckerMatrix) or len(matrix.shapes) < 2:
        product = " ⊗ ".join(f"{rows}x{columns}" for rows, columns in matrix.shapes)
        raise ValueError(
            f"growth: expected a model with two Kronecker factors at least to merge, got {product}; "
            "choose model.kind kru, kru-lstm or kru-gru, and more model.factors"
        )
    if not next_merges(config, matrix):
        count = min(map(matrix.parameters_with, _merged_once(matrix.shapes)))
        raise ValueError(
            f"growth.max-parameters: expected at least the {count} recurrent parameters after one merge, "
            f"got {config.max_parameters}"
        )


def next_merges(config: GrowthConfig, matrix: RecurrentMatrix) -> list[int]:
    """The merges of the next step of growth, as positions for `merge`, one after the other.

    Each is the one that adds the fewest parameters (the first of several), so that factors grow evenly. They
    go on until the matrix has `config.factor` times its parameters, and stop before it has more than
    `config.max_parameters`. None when that allows none.
    """
    merges: list[int] = []
    if not config.max_parameters:
        return merges
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
    return merges


def stalled(config: GrowthConfig, measure: Measure, progress: Progress, value: float) -> bool:
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


def grow(merges: list[int], model: Model, optimizer: torch.optim.Optimizer) -> Grown:
    """Take a step of growth; the optimiser follows."""
    changes = [model.layer.merge(i, optimizer=optimizer) for i in merges]
    return Grown(
        tuple(rows for rows, _ in model.layer.matrix().shapes),
        parameter_count(model).recurrent,
        changes[0].penalty_before or 0.0,
        changes[-1].penalty or 0.0,
    )


def grown_config(recipe: Recipe, weights: Mapping[str, Tensor]) -> ModelConfig:
    """The recipe's model with the factors that weights of it have, which may have grown."""
    if not recipe.growth.max_parameters:
        return recipe.model
    name = "layer.recurrent_l0." + ("base" if recipe.model.constraint == "exact" else "factor")
    count = sum(key.startswith(f"{name}_") for key in weights)
    sizes = tuple(weights[f"{name}_{f}"].shape[-1] for f in range(count))
    return replace(recipe.model, factors=sizes) if sizes else recipe.model


def model_of(recipe: Recipe, sizes: Sizes, weights: Mapping[str, Tensor]) -> Model:
    """The model that has these weights, grown or not."""
    model = build_model(grown_config(recipe, weights), sizes)
    model.load_state_dict(weights)
    return model


def _merged_once(shapes: Shapes) -> list[Shapes]:
    """The shapes after each merge of two neighbours."""
    return [
        (*shapes[:i], (p * r, q * s), *shapes[i + 2 :]) for i, ((p, q), (r, s)) in enumerate(pairwise(shapes))
    ]


def _raised(best: float, gain: float, measure: Measure) -> float:
    return best - gain * abs(best) if measure.lower_is_better else best + gain * abs(best)
