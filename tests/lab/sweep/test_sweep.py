"""A sweep by one process: in SQLite, or in a journal where that makes no difference and is faster."""

import re
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest
from optuna.trial import TrialState

from kru.lab.cli import main
from kru.lab.sweep.storage import Store
from kru.lab.sweep.sweep import DEATHS, MOST_DEATHS, look_at
from kru.training.files import lock_file, unlock_file

FOLDER = Path("runs/sweeps/small")
SQLITE = str(FOLDER / "study.db")
JOURNAL = ["--storage", "study.journal"]


def trials(where="study.journal", name="small"):
    with look_at(name, Store(where)) as study:
        return study.get_trials(SQLITE)


def test_a_sweep_leaves_a_study_and_a_run_for_each_trial(small, capsys):
    assert main([*small, "--trials", "3"]) == 0
    shown = capsys.readouterr()
    assert [trial.state for trial in trials(SQLITE)] == [TrialState.COMPLETE] * 3
    assert len(re.findall(r"^trial \d \(penalty .*\): [\d.]+$", shown.err, re.MULTILINE)) == 3
    assert "small: 3 trials (3 complete)" in shown.out
    best = min(trials(SQLITE), key=lambda trial: trial.value)
    command = re.search(r"the best again: kru (.*)", shown.out)[1].split()
    assert main([*command, "--quiet", "--out", "again"]) == 0
    assert f"{best.value:.4g} on validation" in capsys.readouterr().out


def test_a_finished_sweep_runs_nothing_and_more_trials_prolong_it(small, capsys):
    assert main([*small, "--trials", "2"]) == 0
    before = trials(SQLITE)
    capsys.readouterr()
    assert main([*small, "--trials", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*small, "--trials", "4"]) == 0
    after = trials(SQLITE)
    assert len(after) == 4
    assert [trial.params for trial in after[:2]] == [trial.params for trial in before]


def test_the_same_seed_gives_the_same_trials(small):
    # Two random ones, then two of TPE's; the second sweep is interrupted between those.
    few = [*small, *JOURNAL, "--startup", "2", "--steps", "4"]
    assert main([*few, "--trials", "4"]) == 0
    for count in ("3", "4"):
        assert main([*few, "--trials", count, "--study", "second"]) == 0
    first = [(trial.params, trial.value) for trial in trials()]
    assert first == [(trial.params, trial.value) for trial in trials(name="second")]
    assert len({str(params) for params, _ in first}) == 4
    assert main([*few, "--trials", "1", "--seed", "4", "--study", "third"]) == 0
    assert trials(name="third")[0].params != first[0][0]


def test_a_grid_runs_every_combination_once(small):
    Path("space.toml").write_text("""
        penalty = {low = 0.01, high = 1.0, log = true, points = 3}
        model.factors = {choices = [[2, 2, 2], [8]]}
    """)
    assert main([*small, *JOURNAL, "--sampler", "grid", "--steps", "5", "--trials", "4"]) == 0
    assert main([*small, *JOURNAL, "--sampler", "grid", "--steps", "5"]) == 0
    drawn = [(round(trial.params["penalty"], 6), trial.params["model.factors"]) for trial in trials()]
    assert drawn == [(p, f) for p in (0.01, 0.1, 1.0) for f in ("[2, 2, 2]", "[8]")]


def test_hopeless_trials_are_pruned(small, capsys):
    # Rates that are far too small, once enough trials with good ones have finished.
    Path("space.toml").write_text("optimizer.lr = {choices = [0.03, 0.02, 0.025, 0.021, 0.022, 1e-7]}")
    assert main([*small, *JOURNAL, "--sampler", "grid"]) == 0
    states = [trial.state for trial in trials()]
    assert states == [TrialState.COMPLETE] * 5 + [TrialState.PRUNED]
    # The budget is 24 steps, and its first quarter is let alone.
    assert list(trials()[5].intermediate_values) == [4, 8]
    assert "pruned at step 8" in capsys.readouterr().err
    assert main([*small, *JOURNAL, "--sampler", "grid", "--no-prune", "--study", "all"]) == 0
    assert {trial.state for trial in trials(name="all")} == {TrialState.COMPLETE}


def test_a_trial_that_diverges_is_not_the_end(small, capsys):
    Path("space.toml").write_text("optimizer.lr = {choices = [1e30, 0.01]}")
    assert main([*small, *JOURNAL, "--sampler", "grid"]) == 0
    shown = capsys.readouterr()
    assert "(optimizer.lr 1e+30): diverged" in shown.err
    assert "2 trials (1 complete, 1 diverged)" in shown.out


def test_values_that_make_no_model_are_named(small, capsys):
    Path("space.toml").write_text("model.hidden_size = {choices = [9]}")
    assert main([*small, *JOURNAL]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kru sweep: trial 0 (model.hidden_size 9): factors: ")
    assert error.count("\n") == 1
    assert [trial.state for trial in trials()] == [TrialState.FAIL]


def test_a_trial_that_ends_every_worker_is_given_up(small, capsys):
    few = [*small, *JOURNAL, "--steps", "4"]
    assert main([*few, "--trials", "1"]) == 0
    with look_at("small", Store("study.journal")) as study:
        study.ask().set_user_attr(DEATHS, [MOST_DEATHS, 0])
        study.ask().set_user_attr(DEATHS, [MOST_DEATHS - 1, 0])
    assert main([*few, "--trials", "3"]) == 0
    states = [trial.state for trial in trials()]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert "3 trials (2 complete, 1 failed)" in capsys.readouterr().out


def test_a_folder_in_use_is_left_alone_until_it_is_free(small, capsys):
    lock = lock_file(FOLDER / "trial-0000" / ".lock", wait=False)
    timer = threading.Timer(2.0, unlock_file, [lock])
    timer.start()
    assert main([*small, *JOURNAL, "--steps", "4", "--trials", "2"]) == 0
    timer.join()
    assert [trial.state for trial in trials()] == [TrialState.COMPLETE] * 2
    finished = re.findall(r"^trial (\d) \(.*\): [\d.]+$", capsys.readouterr().err, re.MULTILINE)
    assert finished == ["1", "0"]


def test_a_study_keeps_its_settings(small, capsys):
    assert main([*small, "--trials", "1", "--steps", "5"]) == 0
    assert main([*small, "--trials", "2", "--steps", "6"]) == 2
    assert "sweep small: was started with another recipe; give the same, or choose" in capsys.readouterr().err
    Path("space.toml").write_text("penalty = {low = 0.1, high = 0.2}")
    assert main([*small, "--trials", "2", "--steps", "5"]) == 2
    assert "another space" in capsys.readouterr().err
    assert main([*small, "--trials", "1", "--steps", "5", "--study", "other"]) == 0
    assert len(trials("runs/sweeps/other/study.db", "other")) == 1


def test_sqlite_is_for_one_process(small, capsys):
    assert main([*small, "--trials", "1", "--steps", "5"]) == 0
    assert main([*small, "--trials", "2", "--steps", "5", "--workers", "2"]) == 2
    assert "workers: expected 1 with runs/sweeps/small/study.db" in capsys.readouterr().err
    locks = Store(str(FOLDER / "study.db")).locks()
    with closing(locks):
        assert locks.take("process")
        assert main([*small, "--trials", "2", "--steps", "5"]) == 1
    assert "another process is running this sweep" in capsys.readouterr().err


def test_show_prints_the_best_and_draws_figures(small, capsys):
    assert main([*small, "--trials", "6", "--steps", "4", "--no-prune", *JOURNAL]) == 0
    capsys.readouterr()
    assert main(["sweep", "small.toml", "--show", "--best", "3", *JOURNAL]) == 0
    shown = capsys.readouterr().out
    table = [line.split() for line in shown.splitlines() if re.match(r"\s+\d", line)]
    best = sorted(trials(), key=lambda trial: trial.value)
    assert [int(row[0]) for row in table] == [trial.number for trial in best[:3]]
    assert re.search(r"importance: .*optimizer.lr \d+%", shown)
    for name in ("importance", "slice"):
        assert (FOLDER / "figures" / f"{name}.png").stat().st_size > 10_000
        assert (FOLDER / "figures" / f"{name}.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"kru sweep: expected the name of a recipe first"),
        (["jsb-kru"], r"kru sweep: space: expected --space SPACE.toml"),
        (["jsb-kru", "--space", "nothing.toml"], r"space: no file nothing.toml"),
        (["jsb-kru", "--workers", "0"], r"workers: expected at least 1, got 0"),
        (["jsb-kru", "--parent", "-1"], r"parent: expected at least 0, got -1"),
        (["jsb-kru", "--name", "../up"], r"name: expected a name .* got '../up'"),
        (["jsb-kru", "--study", ".."], r"name: expected a name"),
        (["jsb-kru", "--show"], r"study.db: has no sweep 'jsb-kru'"),
        (["jsb-kru", "--show", "--storage", "here.txt"], r"storage: expected a path ending in .db"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_loses_nothing(small, forks, alone):
    arguments = [*small, "--trials", "1", "--steps", "40", "--checkpoint-seconds", "0", "--out", "out"]
    printed = forks("signal", signal.SIGINT, 0, arguments=arguments)
    assert "exit code 130" in printed
    assert "stopped; run the same command" in printed
    assert "Traceback" not in printed
    [trial] = trials("out/study.db")
    assert trial.state == TrialState.RUNNING
    assert main(arguments) == 0
    [finished] = trials("out/study.db")
    assert (finished.number, finished.params, finished.state) == (0, trial.params, TrialState.COMPLETE)
    assert finished.value == alone(finished, 40)
