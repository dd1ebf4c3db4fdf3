"""The study of state tracking: kinds of recurrence at one size, and Kronecker factors of other sizes."""

from collections.abc import Iterator
from dataclasses import replace

from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.studies.setting import Setting

TRACKING_TASKS = ("parity", "cycle", "even-pairs", "arithmetic", "s3", "a5", "s5")

MODELS = ("kru", "kru-exact", "kru-lstm", "kru-gru", "rnn", "lstm", "gru", "lru")
"""The recipes TASK-MODEL, all with as many units, as many steps and one learning rate."""

SIZED = ("kru-lstm", "kru-gru")
"""The models that are run with other sizes of the state and of the factors, too."""

SIZES = ((2,), (2, 2), (2, 2, 2), (2, 2, 2, 2), (4, 4), (8, 8), (16, 4))
"""Sizes of the factors, whose product is the number of units."""


def tracking_settings(task: str, epochs: int) -> list[Setting]:
    """Every model of the same number of units, then smaller states and larger factors."""
    return [_at_length(setting, epochs) for setting in (*_models(task), *_sizes(task))]


def size_label(model: str, factors: tuple[int, ...]) -> str:
    """What a model with these factors is called.

    >>> size_label("kru-gru", (8, 8))
    'kru-gru-8x8'
    """
    return f"{model}-{'x'.join(map(str, factors))}"


def _models(task: str) -> Iterator[Setting]:
    for model in MODELS:
        yield Setting(task, model, load_recipe(f"{task}-{model}"), model)


def _sizes(task: str) -> Iterator[Setting]:
    for model in SIZED:
        base = load_recipe(f"{task}-{model}")
        for factors in SIZES:
            units = 1
            for size in factors:
                units *= size
            sized = base.model.changed(hidden_size=units, factors=factors)
            yield Setting(task, size_label(model, factors), replace(base, model=sized), model)


def _at_length(setting: Setting, epochs: int) -> Setting:
    if not epochs:
        return setting
    return replace(setting, recipe=with_budget(setting.recipe, epochs=epochs))
