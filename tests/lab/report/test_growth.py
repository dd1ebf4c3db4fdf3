from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kru.lab.cli import main
from kru.lab.recipes.files import load_recipe
from kru.lab.report.studies import draw_study, study_text
from kru.lab.result import read_result
from kru.lab.studies.design import GROWTH_TASKS, STUDIES, Setting
from kru.nn.kinds import model_settings
from kru.training.settings import GrowthSettings

STEPS = (100, 200, 300)


def record(setting, seed, values, seconds, *, growth=(), recurrent=32, accuracy=False):
    """Validations at `STEPS`, with so many seconds for each hundred steps."""
    best = max(values) if accuracy else min(values)
    return {
        "recipe": "jsb-kru",
        "seed": seed,
        "measure": "accuracy" if accuracy else "negative log-likelihood per step",
        "lower_is_better": not accuracy,
        "sequences": {"train": 229},
        "valid": best,
        "test": best + 0.1,
        "parameters": {"total": 100, "recurrent": recurrent},
        "task": "jsb",
        "setting": setting,
        "clock": "cpu",
        "commit": f"c0ffee{seed}",
        "growth": [
            {"step": step, "factors": [16], "rank": 1, "penalty_before": 0.02, "penalty": 0.08}
            for step in growth
        ],
        "curve": [
            {"step": step, "seconds": seconds * step / 100, "valid": value}
            for step, value in zip(STEPS, values, strict=True)
        ],
    }


def records(large_seconds=30.0):
    found = []
    for seed in (1, 2):
        shift = 0.001 * seed
        found += [
            record("small", seed, [9.5, 9.1, 9.0], 10.0),
            record("large", seed, [9.4, 8.9, 8.6 + shift], large_seconds, recurrent=256),
            record("merged", seed, [9.5, 9.1, 8.7], 20.0, growth=[200], recurrent=256),
        ]
    return found


def test_findings_compare_at_equal_steps_and_at_equal_time():
    text = study_text("growth", records())
    assert (
        "**JSB Chorales.** Grown by merging with the first seed: 16 at step 200 (penalty 0.02 to 0.08)."
        in text
    )
    assert "At equal steps the dense matrix is better by 0.4 ± 0.0007 than the small factors." in text
    assert (
        "Grown by merging, it is better by 0.3 ± 0 than the small factors at equal steps, worse by 0.098"
        in text
    )
    # After 60 seconds the dense matrix has had two validations, the best of which was 8.9.
    assert "and better by 0.2 ± 0 than that at equal time." in text
    assert "| small factors | 32 | 9.000 ± 0.000 | 9.100 ± 0.000 | 300 | 30 | 30 | 2 |" in text
    assert "| one dense matrix | 256 | 8.601 ± 0.001 | 8.701 ± 0.001 | 200 | 60 | 90 | 2 |" in text
    assert "| grown by merging | 256 | 8.700 ± 0.000 | 8.800 ± 0.000 | 300 | 60 | 60 | 2 |" in text
    assert "`kru study growth --cpu-time`: the smallest factors" in text
    assert "commit c0ffee1, c0ffee2." in text
    assert "small's best after steps | after CPU seconds | CPU seconds in all" in text


def test_runs_that_never_get_there_and_seeds_that_are_missing():
    found = [record("small", 1, [9.0, 8.5, 8.4], 10.0), record("large", 1, [9.5, 9.0, 8.9], 10.0)]
    assert "| one dense matrix | 32 | 8.900 | 9.000 | not by all seeds | not by all seeds |" in study_text(
        "growth", found
    )
    assert "the dense matrix is worse by 0.5 (one seed) than" in study_text("growth", found)
    other = [record("small", 1, [9.0, 8.5, 8.4], 10.0), record("raised", 1, [9.0, 8.5, 8.4], 10.0)]
    assert "Grown by rank, nothing grew with the first seed." in study_text("growth", other)
    apart = [record("small", 1, [9.0, 8.5, 8.4], 10.0), record("large", 2, [9.0, 8.5, 8.4], 10.0)]
    assert "the dense matrix is not comparable (no common seed) with the small" in study_text("growth", apart)
    more = [
        record("small", 1, [10, 20, 30], 1, accuracy=True),
        record("large", 1, [10, 20, 40], 1, accuracy=True),
    ]
    assert "the dense matrix is better by 10 (one seed) than" in study_text("growth", more)


def test_the_figure_has_steps_and_time_for_each_task(tmp_path):
    both = records() + [{**entry, "task": "ptb-small"} for entry in records()]
    assert [path.name for path in draw_study("growth", both, tmp_path)] == ["growth.png", "growth.svg"]
    drawing = ElementTree.parse(tmp_path / "growth.svg").getroot()
    panels = [group.get("id") for group in drawing.iter() if (group.get("id") or "").startswith("axes_")]
    assert len(panels) == 4


@pytest.mark.parametrize("task", GROWTH_TASKS)
def test_everything_but_the_matrix_is_fixed(task):
    small, *others = (setting.recipe for setting in STUDIES["growth"](task, 0))
    for recipe in others:
        model = replace(recipe.model, factors=small.model.factors)
        assert replace(recipe, model=model, growth=GrowthSettings()) == small
    large, merged, raised = others
    assert large.model.factors == (large.model.hidden_size,)
    assert merged.growth.max_parameters == large.model.hidden_size**2
    assert (merged.growth.by, raised.growth.by) == ("merge", "rank")


def tiny_settings(task, epochs):
    base = load_recipe(f"{task}-kru")
    small = replace(
        base,
        task=replace(load_recipe("copy-1000-kru").task, T=4),
        model=model_settings(hidden_size=8),
        evaluation=replace(base.evaluation, every=2, sequences=20),
        epochs=0,
        steps=8,
    )
    growth = GrowthSettings(200, patience=0, gain=0.9)
    return [
        Setting(task, "small", small),
        Setting(task, "merged", replace(small, growth=growth)),
        Setting(task, "raised", replace(small, growth=replace(growth, by="rank"))),
    ]


def test_a_study_runs_on_the_clock_of_the_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(STUDIES, "growth", tiny_settings)
    assert main(["study", "growth", "--task", "jsb", "--seeds", "1", "--cpu-time"]) == 0
    assert "figure: results/studies/growth.png" in capsys.readouterr().out
    merged = read_result(Path("results/studies/growth/jsb-merged-seed1.json"))
    assert merged["clock"] == "cpu"
    assert [point["factors"] for point in merged["growth"]] == [[8]]
    raised = read_result(Path("results/studies/growth/jsb-raised-seed1.json"))
    assert [point["rank"] for point in raised["growth"]] == [2, 4, 8]
    assert main(["study", "growth", "--task", "timit"]) == 2
    assert "task: expected one of jsb, ptb-small for growth, got 'timit'" in capsys.readouterr().err
