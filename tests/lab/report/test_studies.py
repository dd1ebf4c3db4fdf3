import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kru.lab.cli import main
from kru.lab.recipes.files import load_recipe
from kru.lab.report.clipping import diverged
from kru.lab.report.studies import draw_study, read_study, study_sections, study_text
from kru.lab.result import read_result, write_result
from kru.lab.studies.design import EPOCHS, RATES, STRENGTHS, STUDIES, TASKS, Setting
from kru.nn.kinds import model_settings
from kru.training.interrupt import Interrupted, Interruptible


def record(task, setting, seed, valid, norm=1.5, **others):
    accuracy = task == "timit"
    made = {
        "recipe": f"{task}-kru",
        "seed": seed,
        "measure": "frame accuracy" if accuracy else "negative log-likelihood per step",
        "lower_is_better": not accuracy,
        "baseline": 11.0,
        "sequences": {"train": 80},
        "valid": valid,
        "test": valid,
        "parameters": {"total": 10, "recurrent": 4},
        "steps": 5,
        "wall_seconds": 1.0,
        "stopped": "budget",
        "task": task,
        "setting": setting,
        "spectrum": {"condition_number": norm**2, "spectral_norm": norm, "spectral_radius": norm**0.5},
        "curve": [{"step": 5, "seconds": 1.0, "valid": valid}],
    }
    return made | others


def strength_records(task, values):
    """Three seeds for each setting, 0.02 apart; the norm falls with the strength."""
    labels = ["none", *(f"{strength:.0e}" for strength in STRENGTHS), "exact"]
    assert len(values) == len(labels)
    return [
        record(task, label, seed, value + 0.02 * (seed - 2), norm=2.0 - place / 8)
        for place, (label, value) in enumerate(zip(labels, values, strict=True))
        for seed in (1, 2, 3)
    ]


def test_everything_but_the_strength_is_fixed():
    for task in TASKS:
        recipe = load_recipe(f"{task}-kru")
        settings = STUDIES["unitary"](task, 0)
        assert [setting.label for setting in settings][::8] == ["none", "exact"]
        assert [setting.recipe.penalty for setting in settings] == [0.0, *STRENGTHS, 0.0]
        for setting in settings:
            constraint = "exact" if setting.label == "exact" else "soft"
            assert setting.recipe.model.constraint == constraint
            same = replace(
                setting.recipe, penalty=0.0, model=replace(setting.recipe.model, constraint="soft")
            )
            assert same == settings[0].recipe
            assert (same.task, same.batch_size, same.epochs) == (recipe.task, recipe.batch_size, EPOCHS[task])
            assert same.model == replace(recipe.model, dropout=0.0)


def test_clipping_is_crossed_with_the_penalty():
    settings = [setting.recipe for setting in STUDIES["clipping"]("jsb", 2)]
    crossed = {(recipe.optimizer.lr, recipe.penalty, recipe.optimizer.clip) for recipe in settings}
    assert len(crossed) == len(settings) == 4 * len(RATES)
    assert {recipe.optimizer.recurrent_scale for recipe in settings} == {1.0}
    assert {recipe.epochs for recipe in settings} == {2}


def test_findings_name_the_best_strength_and_compare_it_with_the_papers():
    agreeing = strength_records("jsb", [8.7, 8.7, 8.7, 8.7, 8.6, 8.5, 8.4, 8.6, 8.9])
    text = study_text("unitary", agreeing)
    assert "**JSB Chorales.** The best strength is 1e-2" in text
    assert "of 8.400 ± 0.020; so it is in the paper." in text
    assert "Without a penalty it is 8.700 ± 0.020." in text
    assert "With exactly unitary factors it is 8.900 ± 0.020: by 0.5 worse, as the paper expects." in text
    assert "between the strengths 1e-7 and 1e-1: the spectral norm from 1.875 to 1.125, the" in text
    assert "conditions W better, as in the paper" in text
    assert "| 1e-3 | 1.891 ± 0.000 | 1.375 ± 0.000 |" in text
    noisy = strength_records("piano-midi", [8.7, 8.7, 8.7, 8.7, 8.6, 8.5, 8.4, 8.41, 8.9])
    assert "1e-1, which is worse by 0.01 here: within the deviation over seeds" in study_text(
        "unitary", noisy
    )
    # An accuracy: more is better, and the paper has 1e-5.
    disagreeing = strength_records("timit", [50, 50, 50, 50, 51, 52, 53, 54, 40])
    text = study_text("unitary", disagreeing)
    assert "**TIMIT frames, sample (80 utterances).** The best strength is 1e-1" in text
    assert "1e-5, which is worse by 4 here: more than the deviation over seeds (0.02)" in text


def test_the_figure_has_three_rows_and_a_column_for_each_task(tmp_path):
    records = strength_records("jsb", [8.5] * 9) + strength_records("timit", [50.0] * 9)
    assert [path.name for path in draw_study("unitary", records, tmp_path)] == ["unitary.png", "unitary.svg"]
    drawing = ElementTree.parse(tmp_path / "unitary.svg").getroot()
    panels = [group.get("id") for group in drawing.iter() if (group.get("id") or "").startswith("axes_")]
    assert len(panels) == 6
    assert draw_study("unitary", [], tmp_path) == []


@pytest.mark.parametrize(
    ("study", "wrong"),
    [
        ("unitary", {"task": 3}),
        ("unitary", {"sequences": {}}),
        ("unitary", {"spectrum": {"spectral_norm": 1.0}}),
        ("clipping", {"curve": [{"step": 1, "seconds": 1.0}]}),
        ("growth", {"curve": []}),
        ("growth", {"growth": [{"step": 3}]}),
    ],
)
def test_records_of_another_kind_are_named(study, wrong, tmp_path):
    machine = {"processor": "some", "cores": 2, "threads": 2, "torch": "2.6"}
    others = {"command": "kru train jsb-kru", "commit": "0123456789ab", "machine": machine}
    path = tmp_path / study / "jsb-x-seed1.json"
    write_result(path, record("jsb", "x", 1, 8.5, **others))
    assert len(read_study(tmp_path, study)) == 1
    write_result(path, record("jsb", "x", 1, 8.5, **others) | wrong)
    (key,) = wrong
    with pytest.raises(
        ValueError, match=f"seed1.json: expected a record of the study {study}, got .* for {key}$"
    ):
        read_study(tmp_path, study)


def test_runs_that_diverged_are_counted():
    good = record("jsb", "x1-penalty", 1, 8.5)
    assert not diverged(good)
    assert diverged(good | {"stopped": "diverged"})
    assert diverged(good | {"curve": []})
    assert diverged(good | {"curve": [{"step": 1, "valid": 8.0}, {"step": 2, "valid": 12.0}]})
    assert diverged(good | {"curve": [{"step": 2, "valid": float("nan")}]})
    assert diverged(record("timit", "x1-penalty", 1, 9.0))
    assert not diverged(record("timit", "x1-penalty", 1, 12.0))
    text = study_text("clipping", [good, record("jsb", "x10-penalty", 1, 12.0)])
    assert "Diverged: penalty 1 of 2." in text
    assert "| × 10 | penalty | 1 of 1 | 12.000 |" in text


@pytest.mark.parametrize(
    ("penalty", "clipping", "verdict"),
    [(8.5, 12.0, "keeps at least as many runs"), (12.0, 8.5, "keeps fewer runs than clipping alone, unlike")],
)
def test_the_penalty_is_judged_against_clipping(penalty, clipping, verdict):
    runs = [record("jsb", "x1-penalty", 1, penalty), record("jsb", "x1-clipping", 1, clipping)]
    assert verdict in study_text("clipping", runs)


def tiny_settings(task, epochs):
    base = load_recipe(f"{task}-kru")
    copy = load_recipe("copy-1000-kru")
    small = replace(
        base,
        task=replace(copy.task, T=4),
        model=model_settings(hidden_size=4),
        evaluation=replace(base.evaluation, every=2, sequences=20),
        steps=epochs or 6,
    )
    wild = replace(small, optimizer=replace(small.optimizer, lr=1e25, recurrent_scale=1.0))
    return [Setting(task, "1e-03", replace(small, penalty=1e-3)), Setting(task, "none", wild)]


@pytest.fixture
def tiny_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(STUDIES, "unitary", tiny_settings)
    return ["study", "unitary", "--task", "jsb", "--seeds", "1", "2"]


def test_a_study_runs_records_and_skips(tiny_study, tmp_path, capsys):
    assert main(tiny_study) == 0
    captured = capsys.readouterr()
    assert "[4/4] jsb-none-seed2: cross entropy" in captured.err
    assert "figure: results/studies/unitary.png" in captured.out
    folder = Path("results/studies/unitary")
    assert sorted(path.name for path in folder.iterdir()) == [
        f"jsb-{label}-seed{seed}.json" for label in ("1e-03", "none") for seed in (1, 2)
    ]
    soft = read_result(folder / "jsb-1e-03-seed2.json")
    assert soft["settings"]["penalty"] == 1e-3
    assert soft["command"].startswith("kru train jsb-kru --seed 2")
    assert soft["spectrum"]["spectral_norm"] == pytest.approx(1.0, abs=0.1)
    # One that diverges before its first validation has a record as well.
    wild = read_result(folder / "jsb-none-seed1.json")
    assert wild["stopped"] == "diverged"
    assert len(read_study(Path("results/studies"), "unitary")) == 4
    assert main(tiny_study) == 0
    assert "4 runs, 4 of them recorded" in capsys.readouterr().err
    # A run with another budget is not taken for it.
    assert main([*tiny_study, "--epochs", "4"]) == 2
    assert re.search(r"records a run with other settings \(steps 6\)", capsys.readouterr().err)
    sections = study_sections(Path("results/studies"), tmp_path / "docs" / "RESULTS.md")
    assert len(sections) == 1
    assert sections[0].startswith("## Influence of the soft unitary constraint")
    assert "](../results/studies/unitary.png)" in sections[0]
    write_result(Path("results/music/jsb-kru-seed1.json"), {**record("jsb", "", 1, 8.0), **result_keys()})
    assert main(["results", "--out", "RESULTS.md"]) == 0
    assert "](results/studies/unitary.png)" in Path("RESULTS.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1", "-1"], "seed: expected 0 to 2^63 - 1, got -1"),
        (["--seeds"], "seeds: expected at least one, got none"),
        (["--data-dir", "nowhere"], "nowhere/music/JSB_Chorales.mat: missing; run `kru data fetch"),
    ],
)
def test_a_study_that_cannot_begin_says_so_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "unitary", "--task", "jsb", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"kru study: {message}")
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def result_keys():
    machine = {"processor": "some", "cores": 2, "threads": 1, "torch": "2.6"}
    return {"command": "kru train jsb-kru", "commit": "0", "machine": machine}


def test_an_interrupted_study_goes_on(tiny_study, monkeypatch, capsys):
    whole = ["--results", "whole", "--runs", "whole-runs"]
    assert main([*tiny_study, *whole]) == 0
    calls = count()

    def check(self):
        if next(calls) == 4:
            raise Interrupted(2)

    monkeypatch.setattr(Interruptible, "check", check)
    assert main(tiny_study) == 130
    assert "stopped in jsb-1e-03-seed1, with a checkpoint" in capsys.readouterr().err
    assert main(tiny_study) == 0
    for path in Path("whole/unitary").iterdir():
        first, second = (
            json.loads(p.read_text()) for p in (path, Path("results/studies/unitary", path.name))
        )
        assert [first[key] for key in ("valid", "test", "steps", "spectrum")] == [
            second[key] for key in ("valid", "test", "steps", "spectrum")
        ]
