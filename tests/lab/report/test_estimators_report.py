"""The sections on the estimators, from records made up here."""

import json

import pytest

from kru.lab.cli import main

MACHINE = {"processor": "a processor", "cores": 2, "threads": 1, "torch": "2"}


def write(folder, name, rows):
    folder.mkdir(parents=True, exist_ok=True)
    record = {"command": f"benchmarks/{name}.py", "machine": MACHINE, "rows": rows}
    (folder / f"{name}.json").write_text(json.dumps(record))


def classification(contestant, seed, accuracy, **more):
    return {
        "set": "Motions",
        "contestant": contestant,
        "seed": seed,
        "accuracy": accuracy,
        "train_seconds": 2.0,
        "values": 1234,
        "commit": "abc",
        **more,
    }


def digits(split, accuracy, cases, seed=0):
    return {
        "split": split,
        "budget": 10_000,
        "seed": seed,
        "accuracy": accuracy,
        "cases": cases,
        "parameters": 9154,
        "train_seconds": 20,
        "c_bytes": 45_000,
        "ram_bytes": 4600,
        "c_same": cases,
        "c_microseconds_a_second": 1500,
        "commit": "abc",
    }


def forecast(model, errors, seed=0, **more):
    row = {
        "series": "spots",
        "model": model,
        "seed": seed,
        "rmse": errors,
        "coverage": [0.9, 0.8],
        "origins": 40,
    }
    return {**row, "commit": "abc", **more}


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results" / "benchmarks"
    in_c = {"c_bytes": 9000, "c_microseconds": 3.21}
    write(
        folder,
        "classification",
        [
            *(classification("kru", seed, accuracy, **in_c) for seed, accuracy in enumerate((0.97, 0.99))),
            classification("dtw", 0, 0.9),
        ],
    )
    write(
        folder,
        "forecasts",
        [
            forecast("naive", [10, 20]),
            forecast("ar", [5, 12], order=9, trend="ct"),
            forecast("kru", [4.5, 11.25]),
        ],
    )
    write(
        folder,
        "spoken-digits",
        [digits("official", 0.96, 300), digits("anna", 0.5, 100), digits("bob", 0.8, 300)],
    )
    return tmp_path / "results"


def test_sections_and_tables_say_what_was_recorded(results, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- forecasts -->\nold\n<!-- forecasts -->\nafter\n")
    out = tmp_path / "RESULTS.md"
    assert main(["results", "--results", str(results), "--out", str(out), "--tables", str(page)]) == 0
    text = out.read_text()
    assert "| Motions | 98.0 ± 1.4 | 90.0 | 2 |" in text
    assert "| Motions | KRUClassifier | 1,234 | 2.0 | 9,000 | 3.2 |" in text
    assert "| Motions | 1-NN DTW | 1,234 | 2.0 |  |  |" in text
    assert "`benchmarks/classification.py`, commit abc; a processor." in text
    # Speakers count by their recordings: (50 + 240) of 400.
    assert "| 10,000 | all 2 speakers | 72.5 | 9,154 | 20 | 45,000 | 4,600 | 1.5 | 400 of 400 |" in text
    table = page.read_text()
    assert table.startswith("Before\n<!-- forecasts -->\n| series |")
    assert table.endswith("<!-- forecasts -->\nafter\n")
    assert "| spots | AR(9) with trend | 5 | 12 | 90 %, 80 % | 40 |" in table
    assert "old" not in table
    assert "| spots | KRUForecaster | 4.5 | 11.2 | 90 %, 80 % | 40 |" in table


def test_a_damaged_record_is_one_line(results, tmp_path, capsys):
    write(results / "benchmarks", "forecasts", [forecast("kru", "small")])
    assert main(["results", "--results", str(results), "--out", str(tmp_path / "RESULTS.md")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "forecasts.json: expected a record of a benchmark" in error
    assert "rmse" in error
