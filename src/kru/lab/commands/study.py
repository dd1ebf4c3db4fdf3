"""`kru study NAME`."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from kru.lab.cli import parse
from kru.lab.report.studies import draw_study, read_study, study_text
from kru.lab.result import write_result
from kru.lab.run import RunError, RunOptions
from kru.lab.spelling import expect_known
from kru.lab.studies.design import STUDIES, STUDY_TASKS
from kru.lab.studies.record import is_recorded, run_setting
from kru.lab.studies.setting import Setting
from kru.training.interrupt import Interrupted


@dataclass(frozen=True)
class Options:
    """Vary one setting of a recipe over several seeds, then print a summary and draw a figure.

    Recorded runs are skipped and interrupted runs are resumed, so the same command can be repeated until
    everything is done.
    """

    study: Annotated[
        Literal["unitary", "clipping", "growth", "tracking"],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="STUDY"),
    ]
    """unitary: the strength of the soft unitary constraint, from none to exactly unitary factors; clipping:
    gradient clipping with and without that constraint, at high learning rates; growth: small factors, a
    dense matrix, and models that grow from one to the other; tracking: states of automata, by different recurrences
    and by Kronecker factors of different sizes"""
    task: tuple[
        Literal[
            "jsb",
            "piano-midi",
            "timit",
            "ptb-small",
            "parity",
            "cycle",
            "even-pairs",
            "arithmetic",
            "s3",
            "a5",
            "s5",
        ],
        ...,
    ] = ()
    """tasks to run; default: all tasks of the study (jsb, piano-midi and timit; growth: jsb and ptb-small; tracking:
    parity to s5)"""
    settings: tuple[str, ...] = ()
    """labels of the settings to run, such as kru-gru-8x8; default: all"""
    seeds: tuple[int, ...] = (1, 2, 3)
    """seeds to run"""
    epochs: int = 0
    """epochs of each run; 0: the study's own number for each task"""
    results: Path = Path("results/studies")
    """folder of the figure and, in a subfolder named after the study, of the records"""
    runs: Path = Path("runs/studies")
    """folder of the runs, with the checkpoints to resume from"""
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""
    cpu_time: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """measure CPU time instead of wall-clock time: for curves over time on a busy machine, with OMP_NUM_THREADS=1"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "study", arguments)
    if options.epochs < 0:
        raise ValueError(f"epochs: expected at least 0, got {options.epochs}")
    known = STUDY_TASKS[options.study]
    for task in options.task:
        if task not in known:
            raise ValueError(f"task: expected one of {', '.join(known)} for {options.study}, got {task!r}")
    if not options.seeds:
        raise ValueError("seeds: expected at least one, got none")
    settings = [s for task in options.task or known for s in STUDIES[options.study](task, options.epochs)]
    for label in options.settings:
        expect_known("settings", label, dict.fromkeys(setting.label for setting in settings))
    settings = [setting for setting in settings if not options.settings or setting.label in options.settings]
    # Seed by seed, so that a study that is stopped early has all settings.
    planned = [(setting, seed) for seed in options.seeds for setting in settings]
    missing = [(s, seed) for s, seed in planned if not is_recorded(_path(options, s, seed), s, seed)]
    # A bad seed or missing data is reported before anything runs.
    for problem in {replace(setting.recipe, seed=seed).task for setting, seed in missing}:
        problem.load(options.data_dir)
    print(
        f"{options.study}: {len(planned)} runs, {len(planned) - len(missing)} of them recorded in "
        f"{options.results / options.study}",
        file=sys.stderr,
    )
    begun = time.monotonic()
    failed = 0
    for number, (setting, seed) in enumerate(missing, 1):
        name = f"{setting.task}-{setting.label}-seed{seed}"
        folder = options.runs / options.study / name
        run_options = RunOptions(folder, options.data_dir, quiet=True, cpu_time=options.cpu_time)
        try:
            record = run_setting(setting, seed, run_options)
        except Interrupted as stop:
            print(
                f"kru study: stopped in {name}, with a checkpoint; run the same command to resume",
                file=sys.stderr,
            )
            return 128 + stop.signal
        except RunError as error:
            print(f"kru study: {name}: {error}", file=sys.stderr)
            failed += 1
            continue
        write_result(_path(options, setting, seed), record)
        left = (time.monotonic() - begun) / number * (len(missing) - number) / 60
        print(f"[{number}/{len(missing)}] {_summary(name, record)}; {left:.0f} minutes left", file=sys.stderr)
    records = read_study(options.results, options.study)
    print(study_text(options.study, records))
    for path in draw_study(options.study, records, options.results):
        print(f"figure: {path}")
    return 1 if failed else 0


def _path(options: Options, setting: Setting, seed: int) -> Path:
    return options.results / options.study / f"{setting.task}-{setting.label}-seed{seed}.json"


def _summary(name: str, record: dict[str, Any]) -> str:
    spectrum = record["spectrum"]
    return (
        f"{name}: {record['measure']} {record['valid']:.4g} on validation, spectral norm "
        f"{spectrum['spectral_norm']:.4g}, {record['stopped']} after {record['epochs']:.3g} epochs, "
        f"{record['wall_seconds']:.0f} s"
    )
