"""Running one setting of a study, and the record that this leaves."""

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import kru
from kru.lab.recipes.settings import settings
from kru.lab.result import read_result, read_weights
from kru.lab.run import DivergedRunError, RunOptions, train
from kru.lab.studies.setting import Setting
from kru.training.folder import RESULT, WEIGHTS
from kru.training.metrics import thinned

CURVE = 40
"""A record keeps about so many validations of its run, evenly over it."""

SPECTRUM = ("condition_number", "spectral_norm", "spectral_radius")


def run_setting(setting: Setting, seed: int, run_options: RunOptions) -> dict[str, Any]:
    """Train, and add to the result what the study asks of a run: the spectrum of W in the best model.

    A run that diverges has a record as well, of what it had reached.

    Raises:
        Interrupted: a signal asked to stop; the next call goes on.
        RunError: the run could not go on for another reason.
    """
    recipe = replace(setting.recipe, seed=seed)
    try:
        result = train(recipe, setting.source, run_options)
    except DivergedRunError:
        result = read_result(run_options.folder / RESULT)
    _, model = read_weights(run_options.folder / WEIGHTS)
    spectrum = kru.spectrum(model.layer, dense=True)
    values = {name: getattr(spectrum, name) for name in SPECTRUM}
    validations = [point for point in result["curve"] if "valid" in point]
    return result | {
        "task": setting.task,
        "setting": setting.label,
        "settings": settings(recipe),
        "spectrum": {name: float(f"{v:.6g}") if isfinite(v) else None for name, v in values.items()},
        "clock": "cpu" if run_options.cpu_time else "wall",
        "curve": thinned(validations, 2 * CURVE),
    }


def is_recorded(path: Path, setting: Setting, seed: int) -> bool:
    """Whether `path` has the record of this very run.

    Raises:
        ValueError: it has that of a run with other settings, such as another number of epochs.
    """
    if not path.exists():
        return False
    wanted = settings(replace(setting.recipe, seed=seed))
    recorded = read_result(path).get("settings")
    recorded = recorded if isinstance(recorded, dict) else {}
    # A setting that did not exist yet when the run was made had its default.
    other = [name for name, value in recorded.items() if _plain(wanted.get(name)) != value]
    if other or not recorded:
        changed = ", ".join(f"{name} {recorded[name]}" for name in other) or "no settings"
        raise ValueError(
            f"{path}: records a run with other settings ({changed}); remove it, or choose another --results"
        )
    return True


def _plain(value: Any) -> Any:
    """A setting as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
