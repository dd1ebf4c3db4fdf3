import errno
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from matplotlib import pyplot

from kru.lab.cli import main
from kru.lab.commands import reproduce
from kru.lab.report.figures import PANEL, draw_panel, figure_names
from kru.lab.report.own import own_groups, own_looks
from kru.lab.report.paper import paper_tables
from kru.lab.report.records import read_results
from kru.lab.report.style import COLOURS, LABELS, new_figure
from kru.lab.report.tables import make_tables
from kru.lab.report.targets import QUICK, target_names, target_recipes
from kru.lab.result import read_result, write_result
from kru.nn.kinds import model_settings
from kru.training.checkpoint import Checkpoint, read_tensors, write_tensors
from kru.training.files import expect_folder
from kru.training.folder import CHECKPOINT, WEIGHTS


def made_up(recipe, seed=1, test=8.5, **others):
    curve = [
        {
            "step": 10 * n,
            "epoch": n,
            "seconds": 3.0 * n,
            "loss": 9.0,
            "valid": 8 + math.exp(-n),
            "distance": 0.01 / n,
        }
        for n in range(1, 6)
    ]
    result = {
        "recipe": recipe,
        "model": recipe.partition("-")[2],
        "seed": seed,
        "command": f"kru train {recipe} --seed {seed}",
        "commit": "0123456789ab",
        "machine": {"processor": "some", "cores": 2, "threads": 2, "torch": "2.6"},
        "measure": "negative log-likelihood per step",
        "lower_is_better": True,
        "baseline": 11.06,
        "valid": 8.4,
        "test": test,
        "parameters": {"total": 17846, "recurrent": 58},
        "steps": 50,
        "epochs": 5.0,
        "wall_seconds": 90.0,
        "stopped": "budget",
        "curve": curve,
    }
    return result | others


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    runs = [made_up("jsb-kru"), made_up("jsb-kru", 2, 8.7), made_up("jsb-lstm"), made_up("jsb-kru-gru")]
    runs.append(made_up("copy-1000-kru", measure="cross entropy", baseline=0.0204, test=1e-5))
    for run in runs:
        write_result(folder / "tasks" / f"{run['recipe']}-seed{run['seed']}.json", run)
    return folder


def test_results_are_read_back(results):
    assert sorted((r["recipe"], r["seed"]) for r in read_results(results))[1] == ("jsb-kru", 1)


def test_tables_put_ours_beside_the_papers(results, tmp_path, capsys):
    page = tmp_path / "RESULTS.md"
    assert main(["plot", "--results", str(results)]) == 0
    capsys.readouterr()
    assert main(["results", "music", "--results", str(results), "--out", str(page)]) == 0
    shown = capsys.readouterr().out
    kru = next(line for line in shown.splitlines() if line.startswith("KRU "))
    assert re.split(r" {2,}", kru) == [
        *("KRU", "100", "17,846", "58", "~10K", "~58", "7.90 / 8.59"),
        *("8.400 ± 0.000", "8.600 ± 0.141", "50", "1.5", "2"),
    ]
    assert any(line.startswith("KRU-GRU") for line in shown.splitlines())
    text = page.read_text()
    assert "| LSTM | 36 |" in text
    row = next(line for line in text.splitlines() if "`kru train jsb-kru --seed 2`" in line)
    assert "| 8.700 |" in row
    assert "![music](results/figures/music.png)" in text


@pytest.mark.parametrize("lower_is_better", [True, False])
def test_no_model_is_out_of_the_picture(lower_is_better):
    """A short run far behind is among the worst tenth of all values; its best one is drawn all the same."""
    sign = 1 if lower_is_better else -1
    far, near = (
        [{"step": n, "seconds": 1.0, "valid": sign * (level + 1 / n)} for n in range(1, 1 + points)]
        for level, points in ((40, 2), (8, 100))
    )
    runs = {
        "lstm": [made_up("jsb-lstm", curve=far, lower_is_better=lower_is_better)],
        "kru": [made_up("jsb-kru", curve=near, lower_is_better=lower_is_better)],
    }
    figure, (axes,) = new_figure(1)
    draw_panel(axes, "any", runs, "step")
    low, high = axes.get_ylim()
    pyplot.close(figure)
    assert low < sign * 40.5 < high
    assert low < sign * 8.01 < high


def test_the_legend_hides_no_curve():
    figure, (axes,) = new_figure(1)
    draw_panel(axes, "any", {"kru": [made_up("jsb-kru")], "rnn": [made_up("jsb-rnn")]}, "step")
    figure.canvas.draw()
    legend, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
    pyplot.close(figure)
    assert not legend.overlaps(panel)


def test_legends_side_by_side_do_not_overlap():
    kinds = ["kru", "kru-brief", "lstm", "rc-urnn", "fc-urnn", "fc-urnn-116", "ornn"]
    curve = [{"step": n, "seconds": 1.0, "valid": 90.0 + n} for n in range(1, 5)]
    settings = {"curve": curve, "lower_is_better": False, "measure": "accuracy", "baseline": 11.3}
    runs = {kind: [made_up(f"mnist-{kind}", **settings)] for kind in kinds}
    figure, panels = new_figure(2, size=PANEL)
    for axes in panels:
        draw_panel(axes, "any", runs, "step")
    figure.canvas.draw()
    left, right = (axes.get_legend().get_window_extent() for axes in panels)
    whole = figure.get_window_extent()
    pyplot.close(figure)
    assert left.x1 < right.x0
    assert left.x0 >= whole.x0
    assert right.x1 <= whole.x1


def test_headline_goes_between_the_marks(results, tmp_path, capsys):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- results -->\nold\n<!-- results -->\nafter\n")
    assert main(["results", "--results", str(results), "--headline", str(page)]) == 0
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    music = next(line for line in lines if line.startswith("| JSB"))
    assert "| KRU | 17,846 | 58 | 8.600 ± 0.141 | 8.59 | 1.5 | 2 |" in music
    page.write_text("no marks")
    assert main(["results", "--results", str(results), "--headline", str(page)]) == 2
    assert "expected a page with <!-- results --> twice" in capsys.readouterr().err
    assert page.read_text() == "no marks"


def test_every_table_can_be_made_without_a_run():
    tables = make_tables([])
    assert len(tables) == len(paper_tables()) == 13
    assert all(not table.runs and table.rows for table in tables)
    with pytest.raises(ValueError, match="target: expected one of"):
        make_tables([], ["imagenet"])


def test_figures_are_png_and_svg(results, capsys):
    assert main(["plot", "copy", "wall-clock", "--results", str(results)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in paths] == ["copy.png", "copy.svg", "wall-clock.png", "wall-clock.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(paths[3]).getroot().tag.endswith("svg")


def test_own_tasks_and_recipes_have_tables_and_figures(results, capsys):
    own = {"task": "Parity, T=8", "measure": "accuracy", "lower_is_better": False, "baseline": 50.0}
    runs = [made_up("parity", seed, test, **own, model="kru") for seed, test in ((1, 98.0), (2, 100.0))]
    runs += [made_up("parity-wide", **own, model="kru"), made_up("parity-mine", **own, model="mine:MINE")]
    runs.append(made_up("short", task="Copy memory, T=30", model="kru", measure="cross entropy"))
    folder = results.parent / "own"
    for run in runs:
        write_result(folder / "tasks" / f"{run['recipe']}-seed{run['seed']}.json", run)
    assert main(["results", "--results", str(folder)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith(("Copy memory", "Parity", "Adding"))] == [
        "Copy memory, T=30",
        "Parity, T=8",
    ]
    assert "accuracy, higher is better; 50 without memory." in shown
    row = next(line for line in shown if line.startswith("parity "))
    expected = ["parity", "KRU", "17,846", "58", "8.400 ± 0.000", "99.000 ± 1.414", "50", "1.5", "2"]
    assert re.split(r" {2,}", row) == expected
    assert any(re.match("parity-mine +mine:MINE ", line) for line in shown)
    assert main(["plot", "--results", str(folder)]) == 0
    names = [
        "own-copy-memory-t-30.png",
        "own-copy-memory-t-30.svg",
        "own-parity-t-8.png",
        "own-parity-t-8.svg",
    ]
    assert [Path(line).name for line in capsys.readouterr().out.splitlines()] == names
    picture = (folder / "figures/own-parity-t-8.svg").read_text()
    assert all(f"<!-- {name} -->" in picture for name in ("parity", "parity-wide", "parity-mine"))
    # Where there are runs of both, the paper's tables come first; none of them is empty.
    write_result(results / "tasks/short-seed1.json", runs[-1])
    assert main(["results", "--results", str(results)]) == 0
    shown = capsys.readouterr().out
    assert shown.index("JSB") < shown.index("Copy memory, T=30")
    assert "MNIST" not in shown


def test_recipes_of_the_same_model_look_different():
    runs = {f"r{n}": [made_up(f"r{n}", model="kru", task="any")] for n in range(20)}
    figure, (axes,) = new_figure(1)
    (group,) = own_groups([run for seeds in runs.values() for run in seeds])
    draw_panel(axes, "any", group.runs, "step", own_looks(group.runs))
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()[:20]}
    pyplot.close(figure)
    assert len(looks) == 20


def test_times_are_those_of_the_run_that_is_kept_apart(results, capsys):
    timed = results / "wall-clock"
    timed.mkdir()
    (results / "tasks").rename(timed / "tasks")
    assert main(["plot", "--results", str(results)]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["wall-clock.png", "wall-clock.svg"]


def test_figures_without_runs_are_an_error(results, capsys):
    assert main(["plot", "timit", "--results", str(results)]) == 2
    assert "has no run for timit" in capsys.readouterr().err
    assert main(["plot", "faces", "--results", str(results)]) == 2


def test_a_figure_says_where_a_baseline_out_of_sight_is(results, capsys):
    # Of a run that diverged before its first validation there is no curve.
    write_result(results / "jsb-rnn-seed1.json", made_up("jsb-rnn", curve=[]))
    assert main(["plot", "music", "copy", "--results", str(results)]) == 0
    assert "no memory (11.1, above)" in (results / "figures/music.svg").read_text()
    assert "no memory (0.0204)" in (results / "figures/copy.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plot", "--out", "binary"], "binary: expected a folder to write to (Not a directory)"),
        (["results", "--headline", "nowhere.md"], "nowhere.md: No such file or directory"),
        (["results", "--headline", "binary"], "headline: expected a page in UTF-8, got binary"),
        (["results", "--out", "binary/page.md"], "binary: "),
    ],
)
def test_reports_to_the_wrong_place_are_one_line(arguments, message, results, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(bytes(range(128, 256)))
    assert main([*arguments, "--results", str(results)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"kru {arguments[0]}: {message}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_nothing_is_written_if_one_page_is_wrong(results, tmp_path, capsys):
    page, readme = tmp_path / "RESULTS.md", tmp_path / "README.md"
    readme.write_text("no marks")
    written = ["--out", str(page), "--headline", str(readme)]
    assert main(["results", "--results", str(results), *written]) == 2
    assert "headline: expected a page with" in capsys.readouterr().err
    assert not page.exists()


def test_a_figure_that_cannot_be_written_leaves_the_old_one(results, monkeypatch, capsys):
    assert main(["plot", "copy", "--results", str(results)]) == 0
    picture = results / "figures" / "copy.png"
    before = picture.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "copy.png")

    monkeypatch.setattr("os.fsync", full)
    assert main(["plot", "copy", "--results", str(results)]) == 1
    assert picture.read_bytes() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": "one"},
        {"parameters": {}},
        {"parameters": None},
        {"parameters": {"total": "many", "recurrent": 2}},
        {"curve": [3]},
        {"curve": None},
        {"curve": [{"valid": 1.0}]},
        {"curve": [{"step": 1, "seconds": 1.0, "valid": "good"}]},
        {"test": "good"},
        {"machine": {"cores": 2}},
    ],
)
def test_results_of_another_kind_are_named(wrong, results, capsys):
    (results / "tasks/jsb-rnn-seed1.json").write_text(json.dumps(made_up("jsb-rnn") | wrong))
    assert main(["results", "--results", str(results)]) == 2
    (key,) = wrong
    assert f"jsb-rnn-seed1.json: expected the result of a run, got another kind of value for {key}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"recipe": "x"}', "[" * 100_000, '{"seed": 1' + "0" * 400 + "}", r'{"measure": "\ud800"}'],
)
def test_files_that_are_no_results_are_named(text, tmp_path, capsys):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/x-seed1.json").write_text(text)
    assert main(["results", "--results", str(tmp_path)]) == 2
    assert "x-seed1.json: expected the result of a run" in capsys.readouterr().err


def test_every_model_has_a_colour_and_a_label():
    assert COLOURS.keys() == LABELS.keys()


def test_targets_cover_the_paper():
    assert target_names() == [name for name in QUICK if name in figure_names()]
    full = {recipe.name for target in target_names() for recipe in target_recipes(target, quick=False)}
    assert {"copy-2000-lstm", "adding-750-kru", "pmnist-lstm", "ptb-large-kru-lstm", "timit-kru"} <= full
    for target in target_names():
        quick = target_recipes(target, quick=True)
        assert quick
        assert len({(recipe.steps, recipe.epochs, recipe.task) for recipe in quick}) == len(
            QUICK[target].tasks
        )


@pytest.mark.parametrize("target", target_names())
def test_weights_to_begin_with_are_there_when_they_are_needed(target: str) -> None:
    before: set[str] = set()
    for recipe in target_recipes(target, quick=False):
        start = recipe.start.removeprefix("{results}/").partition("/")[2].removesuffix("-seed{seed}")
        assert start in {"", *before}, recipe.name
        before.add(recipe.name)


def test_reproduce_runs_skips_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def tiny_recipes(target, *, quick):
        return [
            replace(
                recipe,
                steps=4,
                model=model_settings(recipe.model.kind, hidden_size=4),
                task=replace(recipe.task, T=5),
                evaluation=replace(recipe.evaluation, every=2, sequences=20),
            )
            for recipe in target_recipes(target, quick=quick)
        ]

    monkeypatch.setattr(reproduce, "target_recipes", tiny_recipes)
    assert main(["reproduce", "copy", "--quick", "--seeds", "1", "2"]) == 0
    captured = capsys.readouterr()
    assert "figure: runs/quick/results/figures/copy.png" in captured.out
    assert len(list(Path("runs/quick/results/copy").glob("copy-1000-*-seed?.json"))) == 8
    assert main(["reproduce", "copy", "--quick"]) == 0
    assert "copy-1000-kru-seed1: already recorded" in capsys.readouterr().err
    # A shorter run under the same name is not the recipe's.
    path = Path("runs/quick/results/copy/copy-1000-kru-seed1.json")
    recorded = read_result(path)
    for changed, complaint in (
        (
            {"command": recorded["command"].replace("--steps 4", "--steps 3")},
            "got that of `kru train copy-1000-kru",
        ),
        ({"steps": 3}, "expected a run of 4 steps, got one of 3 steps"),
    ):
        write_result(path, recorded | changed)
        assert main(["reproduce", "copy", "--quick"]) == 2
        assert f"{path}: " in (said := capsys.readouterr().err)
        assert complaint in said
    write_result(path, recorded)
    monkeypatch.setattr(
        reproduce, "target_recipes", lambda target, *, quick: tiny_recipes("copy", quick=True)[:1]
    )
    assert main(["reproduce", "wall-clock"]) == 0
    assert Path("results/wall-clock/copy/copy-1000-kru-seed1.json").exists()


def test_runs_on_generated_speech_have_a_table_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "generate", "espeak/timit", "--speakers", "8", "--sentences", "1"]) == 0

    def tiny_recipes(target, *, quick):
        return [
            replace(recipe, steps=2, epochs=0, model=model_settings(recipe.model.kind, hidden_size=4))
            for recipe in target_recipes(target, quick=quick)
        ]

    monkeypatch.setattr(reproduce, "target_recipes", tiny_recipes)
    command = "reproduce timit --data-dir espeak --out runs/espeak --results results/espeak"
    assert main(command.split()) == 0
    assert len(list(Path("runs/espeak").glob("timit-*-seed1/result.json"))) == 4
    capsys.readouterr()
    assert main(["results", "timit", "--out", "RESULTS.md"]) == 0
    official, generated = capsys.readouterr().out.split("TIMIT frames, generated speech")
    kru = [
        [line.split()[2] for line in text.splitlines() if line.startswith("KRU ")]
        for text in (official, generated)
    ]
    assert kru == [["~195K"], ["777"]]
    assert "## TIMIT frames, generated speech" in Path("RESULTS.md").read_text()
    assert main(["results", "music"]) == 0
    assert "generated speech" not in capsys.readouterr().out


def test_inspect_and_evaluate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--task.T", "10", "--model.hidden-size", "8", "--steps", "20", "--evaluation.every", "10"]
    for recipe in ("copy-1000-kru", "copy-1000-kru-lstm"):
        assert main(["train", recipe, *small, "--quiet", "--results", "results"]) == 0
        capsys.readouterr()
        assert main(["inspect", f"runs/{recipe}-seed1"]) == 0
        shown = capsys.readouterr().out
        assert "recurrent" in shown
        assert f"runs/{recipe}-seed1/figures/distance.svg" in shown
        assert main(["inspect", f"results/copy/{recipe}-seed1"]) == 0
        assert f"results/copy/figures/{recipe}-seed1/distance.png" in capsys.readouterr().out
        assert main(["evaluate", f"results/copy/{recipe}-seed1"]) == 0
        shown = capsys.readouterr().out
        result = json.loads(Path(f"results/copy/{recipe}-seed1.json").read_text())
        assert float(shown.split()[-3]) == pytest.approx(result["test"], rel=1e-5)
        assert main(["evaluate", f"runs/{recipe}-seed1", "--split", "valid", "--sequences", "50"]) == 0
        capsys.readouterr()
        assert main(["evaluate", f"runs/{recipe}-seed1", "--length", "30"]) == 0
        longer = capsys.readouterr().out
        assert longer.endswith(" on test with T = 30\n")
        assert longer.split()[5] != shown.split()[5]


@pytest.fixture
def run(tmp_path, capsys):
    """A small run with a matrix that may grow."""
    folder = tmp_path / "run"
    small = ["--task.T", "3", "--model.hidden-size", "8", "--steps", "1", "--growth.max-parameters", "100"]
    assert main(["train", "copy-1000-kru", *small, "--quiet", "--out", str(folder)]) == 0
    capsys.readouterr()
    return folder


def test_inspect_says_what_is_wrong_before_all_else(run, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")

    def complaint(*arguments):
        assert main(["inspect", str(run), *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        return captured.err

    assert "file: expected a folder to write to (Not a directory)" in complaint(
        "--out", str(tmp_path / "file")
    )
    under = str(tmp_path / "file" / "figures")
    assert "figures: expected a folder to write to (Not a directory)" in complaint("--out", under)
    header, weights = read_tensors(run / WEIGHTS)
    first = "layer.recurrent_l0.factor_0"
    infinite = {name: torch.full_like(tensor, math.inf) for name, tensor in weights.items()}
    write_tensors(run / WEIGHTS, infinite, header)
    assert "expected finite values, got some that are not" in complaint()
    for wrong in (
        {name: tensor for name, tensor in weights.items() if name != first},
        weights | {first: torch.zeros(())},
    ):
        write_tensors(run / WEIGHTS, wrong, header)
        assert f"{run / WEIGHTS}: " in complaint()
    mamba = {**header, "recipe": {**header["recipe"], "model": {"kind": "mamba"}}}
    write_tensors(run / WEIGHTS, weights, mamba)
    assert "model.kind: expected one of kru, " in (said := complaint())
    assert f"{run / WEIGHTS}: " in said
    # Without weights the checkpoint's are shown.
    (run / WEIGHTS).unlink()
    checkpoint = Checkpoint.load(run / CHECKPOINT)
    replace(checkpoint, weights={}).save(run / CHECKPOINT)
    assert f"{run / CHECKPOINT}: its tensors don't fit the model of copy-1000-kru" in complaint()


def test_a_folder_that_may_not_be_written_to(tmp_path, monkeypatch):
    # Root, whom tests may be run by, may write everywhere.
    monkeypatch.setattr("os.access", lambda place, mode: place != tmp_path)
    with pytest.raises(ValueError, match=r"new: expected a folder to write to \(Permission denied\)"):
        expect_folder(tmp_path / "new")
