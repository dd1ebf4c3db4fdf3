"""The section on compressed models and its figure."""

import json
from xml.etree import ElementTree

import pytest

from kru.lab.cli import main
from kru.lab.report.compression import compression_section, draw_compression, drawn_ratio

RUN = {
    "valid": 8.1,
    "test": 8.25,
    "parameters": {"total": 900, "recurrent": 256},
    "epochs": 3.0,
    "cpu_seconds": 7.4,
    "curve": [[10, 9.0], [20, 8.5], [30, 8.25]],
}
ROW = {
    "ratio": 10,
    "kind": "4x2",
    "rank": 2,
    "parameters": 25,
    "matrix": {"errors": [0.9], "test": 9.5},
    "states": {"errors": [0.2], "test": 8.75},
    "further": RUN | {"test": 8.125},
    "scratch": RUN | {"test": 8.375},
}
RECORD = {
    "task": "jsb",
    "command": "python benchmarks/compression.py jsb --seed 1",
    "commit": "abc",
    "measure": "negative log-likelihood per step",
    "units": 8,
    "dense": RUN,
    "dense_further": RUN | {"test": 8.2, "epochs": 0.5},
    "curve": RUN["curve"],
    "rows": [
        ROW,
        {key: value for key, value in ROW.items() if key != "scratch"} | {"kind": "low-rank", "rank": 1},
    ],
}


def test_a_table_for_each_record(tmp_path):
    folder, page = tmp_path / "compress", tmp_path / "RESULTS.md"
    folder.mkdir()
    assert compression_section(folder, page) == ""
    (folder / "jsb-seed1.json").write_text(json.dumps(RECORD))
    section = compression_section(folder, page)
    assert "**JSB Chorales**, 8 units, negative log-likelihood per step." in section
    assert (
        "256 recurrent parameters of 900, has 8.250 on the test set after 3 epochs (7 CPU seconds)" in section
    )
    assert "0.5 more epochs give 8.200" in section
    assert "| 10 | 2 x (4 ⊗ 2) | 25 | 9.500 | 8.750 | 8.125 | 8.375 |" in section
    assert "| 10 | rank 1 | 25 | 9.500 | 8.750 | 8.125 |  |" in section
    assert "![" not in section


@pytest.mark.parametrize(
    "text",
    [
        "no record",
        "[]",
        '{"task": "jsb"}',
        json.dumps(RECORD | {"dense": {}}),
        json.dumps(RECORD | {"rows": [ROW | {"parameters": 0}]}),
        json.dumps(RECORD | {"rows": [ROW | {"kind": "4xtwo"}]}),
        json.dumps(RECORD | {"rows": [ROW | {"scratch": None}]}),
    ],
)
def test_what_is_no_record_is_named(text, tmp_path):
    (tmp_path / "jsb-seed1.json").write_text(text)
    with pytest.raises(ValueError, match=r"jsb-seed1.json: expected a record of benchmarks/compression.py"):
        compression_section(tmp_path, tmp_path / "RESULTS.md")


def test_a_figure_with_a_panel_for_each_record(tmp_path):
    folder = tmp_path / "compress"
    assert draw_compression(folder) == []
    folder.mkdir()
    for task in ("jsb", "ptb"):
        (folder / f"{task}-seed1.json").write_text(json.dumps(RECORD | {"task": task}))
    assert [path.name for path in draw_compression(folder)] == ["compress.png", "compress.svg"]
    drawing = ElementTree.parse(tmp_path / "compress.svg").getroot()
    groups = [group.get("id") or "" for group in drawing.iter()]
    assert sum(group.startswith("axes_") for group in groups) == 2
    section = compression_section(folder, tmp_path / "docs" / "RESULTS.md")
    assert "![Compressed models](../compress.png)" in section


def test_the_size_that_is_drawn():
    rows = [ROW | {"ratio": ratio} for ratio in (50, 10, 25)]
    assert drawn_ratio({"rows": rows}) == 25
    without = [{key: value for key, value in row.items() if key != "scratch"} for row in rows[1:]]
    assert drawn_ratio({"rows": [rows[0], *without]}) == 50


def test_the_page_of_results_has_it(tmp_path, capsys):
    (tmp_path / "results" / "studies" / "compress").mkdir(parents=True)
    (tmp_path / "results" / "studies" / "compress" / "jsb-seed1.json").write_text(json.dumps(RECORD))
    page = tmp_path / "RESULTS.md"
    assert main(["results", "--results", str(tmp_path / "results"), "--out", str(page)]) == 0
    capsys.readouterr()
    assert "## Compressing a trained LSTM" in page.read_text()
