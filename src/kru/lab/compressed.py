"""The model of a run with compressed recurrent matrices, and the recipe to fine-tune it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from kru.compression import CompressionReport, compress
from kru.compression.choice import two_factor_splits
from kru.lab.recipes.files import with_budget
from kru.lab.recipes.settings import Recipe
from kru.lab.tasks import Task
from kru.linalg.factors import Shapes
from kru.nn.kinds import ModelSettings, model_settings
from kru.nn.model import SequenceModel, build_model
from kru.nn.states import State
from kru.training.settings import GrowthSettings, ScheduleSettings

KINDS = {"rnn": "kru", "lstm": "kru-lstm", "gru": "kru-gru"}
"""What a model with dense matrices becomes."""


@dataclass(frozen=True)
class CompressedRun:
    """A compressed model, the recipe of such a model, and what the compression did."""

    recipe: Recipe
    model: SequenceModel
    report: CompressionReport


def compress_run(
    recipe: Recipe,
    model: SequenceModel,
    task: Task,
    *,
    max_parameters: int | None = None,
    factors: Sequence[int | tuple[int, int]] | None = None,
    rank: int | None = None,
    batches: int = 0,
) -> CompressedRun:
    """`kru.compress` for the recurrent layer of a model that a recipe trained.

    Args:
        batches: so many of the training data for the inputs on which the errors count; 0: the matrices' own.
    """
    config = recipe.model
    if config.kind not in (*KINDS, *KINDS.values()):
        raise ValueError(
            f"model.kind: expected one of {', '.join((*KINDS, *KINDS.values()))}, got {config.kind!r}"
        )
    module, report = compress(
        model,
        max_parameters,
        factors,
        rank,
        data=_inputs(recipe, model, task, batches) if batches else None,
        only=["layer"],
    )
    first = report.matrices[0]
    # Without growth: what was made smaller should not grow again.
    recipe = replace(
        recipe, model=_config(config, first.factors, first.rank), penalty=0.0, growth=GrowthSettings()
    )
    built = build_model(recipe.model, recipe.task.sizes)
    built.load_state_dict(module.state_dict())
    return CompressedRun(recipe, built, report)


def fine_tuning(recipe: Recipe, rate: float, **budget: float) -> Recipe:
    """The recipe for training on: a budget (steps, epochs, minutes) over which its rates times `rate` fall to zero."""
    slower = replace(recipe.optimizer, lr=rate * recipe.optimizer.lr)
    return replace(with_budget(recipe, **budget), optimizer=slower, schedule=ScheduleSettings(shape="cosine"))


def _config(config: ModelSettings, shapes: Shapes, rank: int) -> ModelSettings:
    """The same layer with these factors."""
    size = config.hidden_size
    low_rank = shapes == two_factor_splits(size, size)[-1]
    own: dict[str, Any] = {
        "factors": () if low_rank else tuple(rows for rows, _ in shapes),
        "low_rank": low_rank,
        "rank": rank,
        "constraint": "none",
    }
    if config.kind not in KINDS:
        return config.changed(**own)
    shared: dict[str, Any] = {
        entry.name: getattr(config, entry.name) for entry in fields(config) if entry.name != "kind"
    }
    if config.kind == "rnn":
        own |= {"field": "real", "nonlinearity": "tanh"}
    return model_settings(KINDS[config.kind], **shared, **own)


def _inputs(
    recipe: Recipe, model: SequenceModel, task: Task, count: int
) -> Iterator[tuple[Tensor, State | None]]:
    """Training batches with the states that they begin with."""
    batches = task.train_batches(recipe.batch_size, epoch=0, seed=recipe.seed)
    state: State | None = None
    for index in range(min(count, len(batches))):
        batch = batches[index]
        yield batch.inputs, state if batch.carry else None
        if task.carries_state:
            state = model(batch.inputs, state if batch.carry else None)[1]
