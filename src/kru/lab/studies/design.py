"""What each study runs."""

from collections.abc import Callable
from dataclasses import replace

from kru.lab.recipes.files import load_recipe, with_budget
from kru.lab.recipes.settings import Recipe
from kru.lab.studies.setting import Setting
from kru.lab.studies.tracking import TRACKING_TASKS, tracking_settings
from kru.nn.kinds import model_settings
from kru.training.settings import EvaluationSettings, GrowthSettings, OptimizerSettings, ScheduleSettings

TASKS = ("jsb", "piano-midi", "timit")
"""Those of the paper's study; a task's recipe is TASK-kru."""

STRENGTHS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

NONE, EXACT = "none", "exact"
"""The labels of the two ends: no penalty, and factors that are unitary by construction."""

LEARNING_RATES = {"jsb": 3e-3, "piano-midi": 3e-3, "timit": 1e-3}
SCHEDULES = {
    "jsb": ScheduleSettings(factor=0.5, patience=4, stop_after=20),
    "piano-midi": ScheduleSettings(factor=0.5, patience=4, stop_after=20),
    "timit": ScheduleSettings(factor=0.3, stop_after=6),
}

EPOCHS = {"jsb": 60, "piano-midi": 30, "timit": 12}
"""So many that the validation measure has passed its best, and all runs of a task take some twenty minutes."""

RATES = (1, 10, 100)
GUARDS = {"neither": (0.0, 0.0), "clipping": (0.0, 1.0), "penalty": (0.1, 0.0), "both": (0.1, 1.0)}
"""What keeps a run from diverging, as (strength of the penalty, bound on the gradient's norm)."""

CLIPPING_EPOCHS = {"jsb": 15, "piano-midi": 6, "timit": 3}
"""Runs that diverge do so early."""


def unitary_settings(task: str, epochs: int) -> list[Setting]:
    """The strength of the soft unitary constraint, from none at all to exactly unitary factors."""
    base = _plain(task, epochs or EPOCHS[task])
    exact = replace(base, penalty=0.0, model=base.model.changed(constraint="exact"))
    return [
        Setting(task, NONE, replace(base, penalty=0.0)),
        *(Setting(task, f"{strength:.0e}", replace(base, penalty=strength)) for strength in STRENGTHS),
        Setting(task, EXACT, exact),
    ]


def clipping_settings(task: str, epochs: int) -> list[Setting]:
    """Gradient clipping, with and without the soft unitary constraint, at rates that ask for it.

    The rate is that of the other study times 1, 10 and 100, and nothing lowers it. The penalty has the greatest
    strength of the other study.
    """
    base = _plain(task, epochs or CLIPPING_EPOCHS[task])
    chosen = []
    for times in RATES:
        for guard, (penalty, clip) in GUARDS.items():
            optimizer = replace(base.optimizer, lr=times * base.optimizer.lr, clip=clip)
            recipe = replace(base, penalty=penalty, optimizer=optimizer, schedule=ScheduleSettings())
            chosen.append(Setting(task, clipping_label(times, guard), recipe))
    return chosen


def clipping_label(times: int, guard: str) -> str:
    """What a setting of `clipping_settings` is called."""
    return f"x{times}-{guard}"


GROWTH_TASKS = ("jsb", "ptb-small")
GROWTH_EPOCHS = {"jsb": 40, "ptb-small": 1}

SMALL, LARGE, MERGED, RAISED = "small", "large", "merged", "raised"
"""The labels of the study of growth: two fixed sizes, and one grown from the small one in each of two ways."""

STALLS = {"jsb": (1, 0.01), "ptb-small": (0, 0.03)}
"""Patience and gain of each task's growth. One epoch of the text is its beginning: it improves all the time."""

TERMS = 4
"""Up to how many terms the rank is raised."""


def growth_settings(task: str, epochs: int) -> list[Setting]:
    """The smallest factors, one dense matrix, and what grows from the one to the other when validation stalls.

    Rates are constant, so that runs can be compared at any moment; those of a recipe whose rates fall would be too
    high for that. The optimiser and the dropout are the study's own, as in `_plain`.
    """
    base = _base(task, epochs or GROWTH_EPOCHS[task])
    base = replace(
        base,
        model=base.model.changed(dropout=0.3 if task == "jsb" else 0.0),
        optimizer=OptimizerSettings("adam", 3e-3, recurrent_scale=0.1),
        schedule=ScheduleSettings(),
    )
    if task == "ptb-small":
        # 411 units have two factors, 256 have eight. Real with tanh, so that all runs take minutes and learn.
        model = model_settings(hidden_size=256, factors=(2,) * 8, field="real", nonlinearity="tanh")
        base = replace(base, model=model, penalty=0.01, evaluation=EvaluationSettings(200, 50, 60_000))
    small = sum(size**2 for size in base.model.factors)
    patience, gain = STALLS[task]
    growth = GrowthSettings(base.model.hidden_size**2, patience=patience, gain=gain)
    raised = replace(growth, max_parameters=TERMS * small, by="rank")
    return [
        Setting(task, SMALL, base),
        Setting(task, LARGE, replace(base, model=base.model.changed(factors=(base.model.hidden_size,)))),
        Setting(task, MERGED, replace(base, growth=growth)),
        Setting(task, RAISED, replace(base, growth=raised)),
    ]


STUDIES: dict[str, Callable[[str, int], list[Setting]]] = {
    "unitary": unitary_settings,
    "clipping": clipping_settings,
    "growth": growth_settings,
    "tracking": tracking_settings,
}
"""The settings of each study for a task and a number of epochs, 0 for the study's own."""

STUDY_TASKS = {"unitary": TASKS, "clipping": TASKS, "growth": GROWTH_TASKS, "tracking": TRACKING_TASKS}
"""The tasks of each study."""


def _base(task: str, epochs: int) -> Recipe:
    return with_budget(load_recipe(f"{task}-kru"), epochs=epochs)


def _plain(task: str, epochs: int) -> Recipe:
    """The data, the model and the batches of the recipe, and plain training.

    A recipe that is tuned for its figure, by dropout for one, would hide what the penalty does by itself, and
    records would no longer fit each other when it is tuned again. The factors have the rate of the other weights, as
    in the paper: at a lower one they stay near where they began, with a penalty or without.
    """
    base = _base(task, epochs)
    return replace(
        base,
        model=base.model.changed(dropout=0.0),
        optimizer=OptimizerSettings("adam", LEARNING_RATES[task]),
        schedule=SCHEDULES[task],
    )
