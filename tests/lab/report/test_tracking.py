"""The study of state tracking: what is run, and how it is told."""

import pytest

from kru.lab.report.studies import draw_study, study_text
from kru.lab.report.tracking import LABELS, TITLES, solved
from kru.lab.studies.design import STUDIES, STUDY_TASKS
from kru.lab.studies.tracking import MODELS, TRACKING_TASKS


def record(task: str, setting: str, seed: int, recurrent: int, accuracy: list[float]) -> dict:
    lengths = ["64", "256", "1024"] if task in ("s3", "a5", "s5") else ["40", "256", "640", "1024"]
    return {
        "task": task,
        "setting": setting,
        "seed": seed,
        "measure": "accuracy",
        "lower_is_better": False,
        "baseline": 50.0,
        "parameters": {"total": 10 * recurrent, "recurrent": recurrent},
        "accuracy_at": dict(zip(lengths, accuracy, strict=True)),
        "accuracy_along": [accuracy[0]] * 16 + [accuracy[-1]] * 16,
    }


@pytest.mark.parametrize("task", TRACKING_TASKS)
def test_models_share_size_budget_and_learning_rate(task: str) -> None:
    settings = STUDIES["tracking"](task, 0)
    assert [setting.label for setting in settings] == list(LABELS)
    assert len({setting.source for setting in settings}) == len(MODELS)
    recipes = [setting.recipe for setting in settings]
    same = {(r.steps, r.epochs, r.batch_size, r.optimizer, r.schedule, r.evaluation, r.task) for r in recipes}
    assert len(same) == 1
    assert {r.model.hidden_size for r in recipes[: len(MODELS)]} == {64}
    trained = 64 if task in ("s3", "a5", "s5") else 40
    assert (recipes[0].task.T, recipes[0].task.valid_length) == (trained, 4 * trained)
    assert {r.epochs for r in (s.recipe for s in STUDIES["tracking"](task, 2))} == {2}


def test_every_task_has_a_title() -> None:
    assert list(TITLES) == list(STUDY_TASKS["tracking"])


def test_solved_means_every_seed() -> None:
    runs = [record("parity", "lstm", seed, 8, [100, 99.5, 99, last]) for seed, last in ((1, 99.0), (2, 98.9))]
    assert solved(runs[:1], "1024")
    assert not solved(runs, "1024")
    assert solved(runs, "640")


def test_findings_name_the_fewest_recurrent_parameters(tmp_path) -> None:
    records = [
        record("parity", "lstm", 1, 16384, [100, 100, 100, 100]),
        record("parity", "lstm", 2, 16384, [100, 100, 100, 100]),
        record("parity", "kru-gru-2x2", 1, 24, [100, 99.5, 70, 60]),
        record("parity", "kru-gru-2x2", 2, 24, [100, 99.5, 50, 50]),
        record("s3", "rnn", 1, 4096, [40, 20, 17]),
    ]
    text = study_text("tracking", records)
    assert "| Parity | 24 (KRU-GRU, factors 2 × 2) | 16,384 (LSTM) | 2 |" in text
    assert "| Word problem of S3 | none | none | 1 |" in text
    assert (
        "| KRU-GRU, factors 2 × 2 | 24 | 240 | **100.0** | **99.5** | 60.0 (50.0) | 55.0 (50.0) | 2 |" in text
    )
    assert "**Word problem of S3** (50% for the most frequent answer)." in text
    written = draw_study("tracking", records, tmp_path)
    assert sorted(path.name for path in written) == ["tracking.png", "tracking.svg"]
    drawn = (tmp_path / "tracking.svg").read_text()
    for label in ("LSTM", "RNN", "Parity"):
        assert f"<!-- {label} -->" in drawn
    assert "KRU-GRU, factors" not in drawn
