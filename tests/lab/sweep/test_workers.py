"""Several workers on one study: nothing is lost when they are killed, and nothing is done twice."""

import copy
import re
import signal
from pathlib import Path

import pytest
from optuna.trial import TrialState

from kru.lab.cli import main
from kru.lab.result import read_result
from kru.lab.sweep.storage import Store
from kru.lab.sweep.sweep import Sweep, look_at


def trials(where, name="small"):
    with look_at(name, Store(str(where))) as study:
        return study.get_trials()


def expect_whole(found, count, folder="out"):
    """Exactly so many trials, each finished, and complete ones with the value that their run has."""
    assert [trial.number for trial in found] == list(range(count))
    assert {trial.state for trial in found} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert any(trial.state == TrialState.COMPLETE for trial in found)
    for trial in found:
        if trial.state == TrialState.COMPLETE:
            assert (
                trial.value
                == read_result(Path(folder) / f"trial-{trial.number:04d}" / "result.json")["valid"]
            )


def test_four_workers_on_postgresql_of_which_one_is_killed(small, forks, alone, postgres):
    arguments = [*small, "--trials", "6", "--steps", "40", "--checkpoint-seconds", "0.01", "--out", "out"]
    arguments += ["--storage", postgres, "--study", "shared"]
    printed = forks("first-dies", 4, arguments=arguments)
    found = trials(postgres, "shared")
    expect_whole(found, 6)
    # The trial of the killed worker went on where its last checkpoint was, and ended as if nothing had been.
    assert re.search(r"trial 0 \(.*\): resumed from step [1-9]", printed)
    assert [trial.number for trial in found if "deaths" in trial.user_attrs] == [0]
    assert found[0].value == alone(found[0], 40)
    # Everybody who joined shows the same study at the end.
    assert printed.count("shared: 6 trials (") == 3
    assert main(["sweep", "small.toml", "--storage", postgres, "--study", "shared", "--show"]) == 0


def test_a_trial_that_ends_while_another_worker_reaches_for_it(small, monkeypatch):
    """Its worker finishes it, and gives its lock back, after the other one has read that it runs."""
    assert main([*small, "--trials", "2", "--out", "out"]) == 0
    with look_at("small", Store("out/study.db")) as study:
        ended = study.trials
        running = [copy.copy(trial) for trial in ended]
    running[1].state = TrialState.RUNNING
    reads = iter([running])
    monkeypatch.setattr(Sweep, "trials", lambda sweep: next(reads, None) or sweep.study.get_trials())
    assert main([*small, "--trials", "2", "--out", "out"]) == 0
    assert next(reads, None) is None
    assert [trial.state for trial in trials("out/study.db")] == [trial.state for trial in ended]
    assert [trial.user_attrs for trial in trials("out/study.db")] == [trial.user_attrs for trial in ended]


@pytest.mark.parametrize("kind", ["db", "journal"])
def test_workers_killed_at_random_moments_lose_nothing(kind, small, forks):
    arguments = [*small, "--trials", "4", "--checkpoint-seconds", "0", "--out", "out"]
    forks("at-random", 5, 1, arguments=[*arguments, "--storage", f"out/study.{kind}"])
    expect_whole(trials(f"out/study.{kind}"), 4)


def test_a_crew_shares_a_journal_and_stops_together(small, forks):
    arguments = [*small, "--trials", "4", "--checkpoint-seconds", "0", "--out", "out"]
    # Sent when the second trial has begun, so that both workers have one.
    printed = forks("signal", signal.SIGTERM, 1, arguments=[*arguments, "--workers", "2"])
    assert "exit code 143" in printed
    assert printed.count("stopped; run the same command") == 1
    assert "Traceback" not in printed
    before = trials("out/study.journal")
    assert len(before) >= 2
    # A journal is for one worker as well.
    assert main(arguments) == 0
    found = trials("out/study.journal")
    expect_whole(found, 4)
    assert [trial.params for trial in found[: len(before)]] == [trial.params for trial in before]
