import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kru.lab.cli import main
from kru.lab.result import commit, read_result, write_result
from kru.training import files
from kru.training.checkpoint import Checkpoint
from kru.training.metrics import read_metrics

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
LONG = ("--steps", "240", "--quiet", "--checkpoint-seconds", "0")


def test_a_run_killed_at_random_moments_ends_with_the_same_weights(tiny, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["train", tiny, *LONG, "--out", str(whole)]) == 0
    script = Path(__file__).with_name("kill_repeatedly.py")
    done = subprocess.run(
        [sys.executable, str(script), "12", "1", "train", tiny, *LONG, "--out", str(cut)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    killed_at = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    assert len(killed_at) == 12
    # The kills must have hit the run itself, not only its start or its end.
    assert len({step for step in killed_at if 0 < step < 240}) > 2, killed_at
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        expected, got = load_file(whole / name), load_file(cut / name)
        assert expected.keys() == got.keys()
        assert all((expected[key] == got[key]).all() for key in expected)
    first, second = (read_result(folder / "result.json") for folder in (whole, cut))
    assert [first[key] for key in ("valid", "test", "steps")] == [
        second[key] for key in ("valid", "test", "steps")
    ]
    curves = [[(p["step"], p.get("loss"), p.get("valid")) for p in r["curve"]] for r in (first, second)]
    assert curves[0] == curves[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_with_a_checkpoint(number, code, tiny, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", tiny, "--steps", "100000", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "kru", *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    while not (out / "metrics.jsonl").exists() or (out / "metrics.jsonl").stat().st_size < 500:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    last = errors.strip().splitlines()[-1]
    assert "stopped with a checkpoint" in last
    assert last.endswith("run the same command to resume")
    assert "Traceback" not in errors
    more = str(Checkpoint.load(out / "checkpoint.safetensors").progress.step + 10)
    assert main(["train", tiny, "--steps", more, "--out", str(out), "--resume"]) == 0
    assert "resuming from step" in capsys.readouterr().err


def test_a_full_disk_loses_nothing(tiny, tmp_path, monkeypatch, capsys):
    whole, full = tmp_path / "whole", tmp_path / "full"
    assert main(["train", tiny, "--quiet", "--out", str(whole)]) == 0
    writes = iter(range(10**9))
    real = os.fsync

    def fsync(descriptor):
        if next(writes) > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    arguments = ["train", tiny, "--quiet", "--out", str(full), "--checkpoint-seconds", "0"]
    assert main(arguments) == 1
    assert "cannot write (No space left on device); what was there before is whole" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([*arguments, "--resume"]) == 0
    expected, got = (load_file(folder / "weights.safetensors") for folder in (whole, full))
    assert all((expected[key] == got[key]).all() for key in expected)


def test_the_result_has_the_commit_at_the_start(tiny, tmp_path, monkeypatch):
    """Whatever the source's folder is at when the run ends."""
    monkeypatch.chdir(tmp_path)

    def git(_: Path, verb: str, *__: str) -> str:
        begun = Path("runs/tiny-seed3/metrics.jsonl").exists()
        return {"ls-files": "", "status": "", "rev-parse": "0ther" if begun else "c0ffee"}[verb]

    monkeypatch.setattr("kru.lab.result._git", git)
    commit.cache_clear()
    assert main(["train", tiny, "--quiet", "--results", "results"]) == 0
    commit.cache_clear()
    assert read_result(Path("results/copy/tiny-seed3.json"))["commit"] == "c0ffee"


def test_result_has_what_reports_read(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", tiny, "--quiet", "--results", "results"]) == 0
    result = json.loads(Path("results/copy/tiny-seed3.json").read_text())
    assert result["command"] == f"kru train {tiny} --seed 3"
    assert result["parameters"] == {"total": 362, "recurrent": 24}
    assert result["steps"] == 60
    assert result["epochs"] == pytest.approx(60 / 25000)
    assert result["measure"] == "cross entropy"
    assert {"commit", "machine", "wall_seconds", "valid", "test"} <= set(result)
    assert [point["step"] for point in result["curve"] if "valid" in point] == [
        7 * n for n in range(1, 9)
    ] + [60]
    assert Path("runs/tiny-seed3/result.json").exists()
    assert Path("results/copy/tiny-seed3.safetensors").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_losses_and_validations(tiny, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "run"
    assert main(["train", tiny, "--out", str(out), "--steps", "40", "--tensorboard"]) == 0
    events = accumulator.EventAccumulator(str(out / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [20, 40]
    valid = [line["valid"] for line in read_metrics(out / "metrics.jsonl") if "valid" in line]
    shown = [event.value for event in events.Scalars("valid cross entropy")]
    assert shown == pytest.approx(valid, rel=1e-5)  # metrics are rounded to six digits


def test_a_finished_run_is_not_run_again_but_can_be_prolonged(tiny, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", tiny, "--quiet", "--out", out]) == 0
    first = capsys.readouterr().out
    assert main(["train", tiny, "--quiet", "--out", out]) == 0
    assert capsys.readouterr().out == first
    assert main(["train", tiny, "--quiet", "--out", out, "--steps", "80"]) == 0
    assert "of 80)" in capsys.readouterr().out


def _contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _expect_consistent(folder):
    """Whatever is in the folder of a run is of its last checkpoint; returns how many steps that has."""
    checkpoint = Checkpoint.load(folder / "checkpoint.safetensors")
    weights, result = folder / "weights.safetensors", folder / "result.json"
    if weights.exists():
        got = load_file(weights)
        assert all(torch.equal(tensor, got[name]) for name, tensor in checkpoint.best_weights.items())
    if result.exists():
        assert weights.exists()
        assert read_result(result)["steps"] == checkpoint.progress.step
        assert checkpoint.progress.stopped
    return checkpoint.progress.step


def test_a_prolonged_run_killed_before_any_of_its_writes_ends_with_its_own_result(tiny, tmp_path, capsys):
    """Not with that of the shorter run before it."""
    whole = tmp_path / "whole"
    assert main(["train", tiny, "--quiet", "--out", str(whole)]) == 0
    script = Path(__file__).with_name("kill_before_writes.py")
    longer = ["train", tiny, "--quiet", "--steps", "100", "--out"]
    done = subprocess.run(
        [sys.executable, str(script), str(whole), str(tmp_path / "cut"), *longer],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    killed = [line.split() for line in done.stdout.splitlines() if line.startswith("before ")]
    assert [name for _, name, _ in killed] == [
        "result.json",
        "weights.safetensors",
        "checkpoint.safetensors",
        "checkpoint.safetensors",
        "weights.safetensors",
        "result.json",
    ]
    assert main([*longer, str(whole)]) == 0
    expected = load_file(whole / "weights.safetensors")
    steps = []
    for _, _, folder in killed:
        out = Path(folder)
        steps.append(_expect_consistent(out))
        recorded = tmp_path / "recorded" / out.name
        assert main([*longer, folder, "--results", str(recorded)]) == 0
        assert "of 100)" in capsys.readouterr().out
        assert _expect_consistent(out) == 100
        result = read_result(recorded / "copy/tiny-seed3.json")
        assert result["steps"] == 100
        assert result["made_from"]["budget"] == {"steps": 100, "epochs": 0, "minutes": 0}
        for path in (out / "weights.safetensors", recorded / "copy/tiny-seed3.safetensors"):
            got = load_file(path)
            assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert steps == [60, 60, 60, 60, 100, 100]


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "weights.safetensors", "result.json"])
def test_files_of_a_shorter_run_are_not_taken_for_those_of_the_longer_one(name, tiny, tmp_path):
    """Each of the three put back from before, as a copy of a folder that was made in between would have them."""
    out = tmp_path / "run"
    command = ["train", tiny, "--quiet", "--out", str(out), "--steps"]
    assert main([*command, "40"]) == 0
    shorter = _contents(out)
    assert main([*command, "70"]) == 0
    longer = _contents(out)
    assert shorter[name] != longer[name]
    (out / name).write_bytes(shorter[name])
    assert main([*command, "70"]) == 0
    assert _expect_consistent(out) == 70
    got = load_file(out / "weights.safetensors")
    (out / "weights.safetensors").write_bytes(longer["weights.safetensors"])
    expected = load_file(out / "weights.safetensors")
    assert all(torch.equal(expected[key], got[key]) for key in expected)


def test_a_result_that_does_not_say_what_it_was_made_from_is_made_again(tiny, tmp_path):
    """As an earlier version left them: it may be that of an earlier checkpoint."""
    out = tmp_path / "run"
    assert main(["train", tiny, "--quiet", "--out", str(out)]) == 0
    result = read_result(out / "result.json")
    stale = {key: value for key, value in result.items() if key != "made_from"} | {"steps": 30, "test": 0.5}
    write_result(out / "result.json", stale)
    assert main(["train", tiny, "--quiet", "--out", str(out)]) == 0
    again = read_result(out / "result.json")
    assert [again[key] for key in ("steps", "test", "curve")] == [
        result[key] for key in ("steps", "test", "curve")
    ]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (["--steps", "40"], ["--steps", "30"], "has a run of 40 steps, more than the budget of 30; "),
        (["--epochs", "2"], ["--epochs", "1"], "has a run of 2 epochs, more than the budget of 1; "),
        (["--epochs", "2"], ["--steps", "7"], "has a run of 10 steps, more than the budget of 7; "),
        (["--minutes", "0.004"], ["--minutes", "0.001"], " minutes, more than the budget of 0.001; "),
    ],
)
def test_a_run_cannot_be_shortened(first, second, message, tmp_path, capsys, one_thread):
    """What it has trained is not what the smaller budget gives, so that nothing is written or recorded."""
    corpus, out, results = tmp_path / "corpus", tmp_path / "run", tmp_path / "results"
    assert main(["data", "generate", str(corpus / "timit"), "--speakers", "8", "--sentences", "1"]) == 0
    small = ["train", "timit-kru", "--quiet", "--model.hidden-size", "8", "--model.factors", "2", "4"]
    small += ["--batch-size", "1", "--data-dir", str(corpus), "--out", str(out), "--results", str(results)]
    assert main([*small, *first]) == 0
    before = [_contents(folder) for folder in (out, results, results / "timit")]
    capsys.readouterr()
    assert main([*small, *second]) == 2
    printed = capsys.readouterr()
    assert f"{out}: has a run of " in printed.err
    assert message + "a run cannot be shortened: choose another --out" in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert [_contents(folder) for folder in (out, results, results / "timit")] == before
    # Its own budget is not smaller, though a budget in minutes is always exceeded by a part of a step.
    assert main([*small, *first]) == 0
    (out / "result.json").unlink()
    assert main([*small, *first]) == 0


def test_divergence_is_explained_and_the_best_weights_kept(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", tiny, "--quiet", "--out", str(out), "--optimizer.lr", "1e25"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("kru train: training diverged: ")
    assert "--optimizer.recurrent-scale" in message
    assert message.count("\n") == 1
    assert all(tensor.isfinite().all() for tensor in load_file(out / "weights.safetensors").values())


def test_settings_of_another_run_are_refused(tiny, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", tiny, "--quiet", "--out", out, "--steps", "3"]) == 0
    assert main(["train", tiny, "--quiet", "--out", out, "--steps", "3", "--penalty", "0.7"]) == 2
    assert "has a run with other settings (here penalty 0.7)" in capsys.readouterr().err


@pytest.mark.parametrize(("seed", "code"), [("3", 0), ("4", 2)])
def test_what_another_process_trained_in_the_meantime_is_kept(seed, code, tiny, tmp_path):
    """Before the lock was taken there was no run; now there is one, of the same settings or of others."""
    out, go = tmp_path / "run", tmp_path / "go"
    script = Path(__file__).with_name("hold_at_lock.py")
    arguments = ["train", tiny, "--quiet", "--seed", seed, "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, str(script), str(go), *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as late:
        try:
            assert late.stdout.readline() == "held\n"
            assert main(["train", tiny, "--quiet", "--seed", "3", "--out", str(out)]) == 0
            before = _contents(out)
        finally:
            go.touch()
        printed, errors = late.communicate(timeout=60)
    assert late.returncode == code, errors
    assert _contents(out) == before
    assert ("tiny seed 3: " in printed) == (code == 0)
    assert ("has a run with other settings (here seed 4)" in errors) == (code == 2)


def test_of_runs_with_other_settings_started_at_once_only_one_ends_well(tiny, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "kru", "train", tiny, "--quiet", "--out", str(out)]
    seeds = [1, 2, 3, 4]
    processes = [
        subprocess.Popen(
            [*command, "--seed", str(seed)], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for seed in seeds
    ]
    printed = [process.communicate(timeout=120) for process in processes]
    codes = [process.returncode for process in processes]
    assert codes.count(0) == 1, printed
    assert set(codes) <= {0, 1, 2}
    for code, (_, errors) in zip(codes, printed, strict=True):
        messages = {0: b"", 1: b"another process is training there", 2: b"has a run with other settings"}
        assert messages[code] in errors
        assert errors.count(b"\n") == (code != 0)
    assert read_result(out / "result.json")["seed"] == seeds[codes.index(0)]
    assert _expect_consistent(out) == 60


@pytest.mark.parametrize("name", ["result.json", "weights.safetensors", "metrics.jsonl"])
@pytest.mark.parametrize("own", [True, False])
def test_files_of_something_else_are_not_replaced(name, own, tiny, tmp_path, capsys):
    """Neither where there is no run, nor where there is one."""
    out, path = tmp_path / "run", tmp_path / "run" / name
    command = ["train", tiny, "--quiet", "--out", str(out), "--steps"]
    if own:
        assert main([*command, "3"]) == 0
    out.mkdir(exist_ok=True)
    path.write_bytes(b'{"accuracy": 0.9}\n')
    before = _contents(out)
    for steps in ("3", "4"):
        capsys.readouterr()
        assert main([*command, steps, "--results", str(tmp_path / "results")]) == 2
        message = capsys.readouterr().err
        told = "of something else than its run" if own else "but no checkpoint.safetensors"
        assert f"{out}: has {name} {told}; choose another --out" in message
        assert message.count("\n") == 1
        assert {key: data for key, data in _contents(out).items() if key != ".lock"} == {
            key: data for key, data in before.items() if key != ".lock"
        }
    assert not (tmp_path / "results").exists()
    path.unlink()
    assert main([*command, "4"]) == 0


def test_the_weights_of_a_model_that_grew_are_those_of_its_run(tiny, tmp_path):
    growth = ["--growth.max-parameters", "200", "--growth.patience", "0", "--growth.gain", "0.5"]
    command = ["train", tiny, "--quiet", *growth, "--out", str(tmp_path / "run"), "--steps"]
    assert main([*command, "60"]) == 0
    result = read_result(tmp_path / "run" / "result.json")
    assert result["growth"]
    assert main([*command, "60"]) == 0
    assert read_result(tmp_path / "run" / "result.json") == result
    assert main([*command, "63"]) == 0


def test_a_finished_run_without_its_checkpoint_is_not_replaced(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", tiny, "--quiet", "--out", str(out), "--steps", "3"]) == 0
    (out / "checkpoint.safetensors").unlink()
    before = _contents(out)
    capsys.readouterr()
    assert main(["train", tiny, "--quiet", "--out", str(out), "--steps", "4"]) == 2
    found = "result.json and weights.safetensors and metrics.jsonl but no checkpoint.safetensors"
    assert f"{out}: has {found}; choose another --out" in capsys.readouterr().err
    assert _contents(out) == before


@pytest.mark.parametrize("name", ["result.json", "weights.safetensors"])
def test_files_of_another_run_are_not_replaced(name, tiny, tmp_path, capsys):
    for seed in ("3", "4"):
        out = str(tmp_path / seed)
        assert main(["train", tiny, "--quiet", "--out", out, "--steps", "3", "--seed", seed]) == 0
    other = (tmp_path / "4" / name).read_bytes()
    (tmp_path / "3" / name).write_bytes(other)
    assert main(["train", tiny, "--quiet", "--out", str(tmp_path / "3"), "--steps", "5"]) == 2
    assert f"has {name} of something else than its run" in capsys.readouterr().err
    assert (tmp_path / "3" / name).read_bytes() == other


@pytest.mark.parametrize("lines", [b"", b"\0" * 40, b'{"st'])
def test_metrics_that_a_loss_of_power_left_are_replaced(lines, tiny, tmp_path):
    out = tmp_path / "run"
    assert main(["train", tiny, "--quiet", "--out", str(out), "--steps", "3"]) == 0
    (out / "metrics.jsonl").write_bytes(lines)
    assert main(["train", tiny, "--quiet", "--out", str(out), "--steps", "4"]) == 0


def test_a_run_killed_before_its_first_checkpoint_is_begun_again(tiny, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    script = Path(__file__).with_name("kill_before_writes.py")
    command = ["train", tiny, "--quiet", "--out"]
    done = subprocess.run(
        [sys.executable, str(script), str(empty), str(tmp_path / "cut"), *command],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    killed = [line.split() for line in done.stdout.splitlines() if line.startswith("before ")]
    assert [name for _, name, _ in killed] == [
        "checkpoint.safetensors",
        "checkpoint.safetensors",
        "weights.safetensors",
        "result.json",
    ]
    assert not (Path(killed[0][2]) / "checkpoint.safetensors").exists()
    for _, _, folder in killed:
        assert main([*command, folder]) == 0
        assert _expect_consistent(Path(folder)) == 60


def test_a_run_begins_with_the_weights_it_is_told(tiny, tmp_path, capsys):
    first, second = tmp_path / "first-seed3", tmp_path / "second"
    assert main(["train", tiny, "--quiet", "--steps", "5", "--out", str(first)]) == 0
    start = ["--start", str(tmp_path / "first-seed{seed}")]
    # At this rate nothing changes, so that what it ends with is what it began with.
    still = ["--steps", "1", "--optimizer.lr", "1e-30", "--quiet"]
    assert main(["train", tiny, *still, *start, "--out", str(second)]) == 0
    expected, got = (load_file(folder / "weights.safetensors") for folder in (first, second))
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert "--start" in read_result(second / "result.json")["command"]
    # What was begun goes on without them.
    (first / "weights.safetensors").unlink()
    assert main(["train", tiny, *still, "--steps", "2", *start, "--out", str(second)]) == 0
    capsys.readouterr()
    assert main(["train", tiny, *still, *start, "--out", str(tmp_path / "third")]) == 2
    assert "first-seed3/weights.safetensors: no such file" in capsys.readouterr().err
    assert main(["train", tiny, *still, "--start", "none", "--out", str(tmp_path / "third")]) == 2
    assert "start: none: no such weights; expected a .safetensors file" in capsys.readouterr().err
    other = ["--start", str(second), "--model.hidden-size", "16", "--out", str(tmp_path / "third")]
    assert main(["train", tiny, *still, *other]) == 2
    assert "start: expected weights of the model of tiny, got " in capsys.readouterr().err
    assert not (tmp_path / "third").exists()


def test_a_run_begins_with_recorded_weights(tiny, tmp_path, capsys):
    """What stands for the folder of results is the one that is given, or the usual one where none is."""
    results = ["--results", str(tmp_path / "recorded")]
    start = ["--quiet", "--start", "{results}/copy/tiny-seed{seed}", "--out", str(tmp_path / "second")]
    assert main(["train", tiny, *start, *results]) == 2
    advice = (
        "recorded/copy/tiny-seed3: no such weights; expected a .safetensors file or the folder of a run; "
    )
    assert advice + "of another recipe: train that first, with the same --results" in capsys.readouterr().err
    assert main(["train", tiny, *start]) == 2
    assert "start: results/copy/tiny-seed3: no such weights" in capsys.readouterr().err
    assert main(["train", tiny, "--quiet", "--steps", "5", "--out", str(tmp_path / "first"), *results]) == 0
    assert main(["train", tiny, *start, *results, "--steps", "1", "--optimizer.lr", "1e-30"]) == 0
    expected, got = (load_file(tmp_path / name / "weights.safetensors") for name in ("first", "second"))
    assert all(torch.equal(expected[name], got[name]) for name in expected)


@pytest.mark.parametrize("steps", ["2", "3"])
def test_other_data_are_refused(steps, tmp_path, capsys):
    """Of a run that goes on, and of one that is finished: its figure is not one of the other data."""
    for speakers in (8, 9):
        corpus = str(tmp_path / f"corpus{speakers}" / "timit")
        assert main(["data", "generate", corpus, "--speakers", str(speakers), "--sentences", "1"]) == 0
    small = ["train", "timit-kru", "--quiet", "--model.hidden-size", "8", "--model.factors", "2", "4"]
    small += ["--out", str(tmp_path / "run")]
    assert main([*small, "--steps", "2", "--data-dir", str(tmp_path / "corpus8")]) == 0
    assert main([*small, "--steps", steps, "--data-dir", str(tmp_path / "corpus9")]) == 2
    assert "has a run on other data (there train 5, valid 1, test 2, baseline " in capsys.readouterr().err
    assert main([*small, "--steps", steps, "--data-dir", str(tmp_path / "corpus8")]) == 0


def test_a_damaged_checkpoint_is_named_with_a_way_out(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    command = ["train", tiny, "--quiet", "--out", str(out), "--steps"]
    assert main([*command, "3"]) == 0
    path = out / "checkpoint.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert main([*command, "4"]) == 2
    message = capsys.readouterr().err
    assert f"{path}: expected a whole safetensors file" in message
    assert f"to begin anew remove the folder {out}, or choose another --out" in message
    assert message.count("\n") == 1
    checkpoint = Checkpoint.load(_written(path, whole))
    checkpoint.weights = {name: tensor[:1] for name, tensor in checkpoint.weights.items()}
    checkpoint.save(path)
    assert main([*command, "4"]) == 2
    assert (
        f"{path}: training cannot resume from it (its tensors don't fit the model of tiny"
        in capsys.readouterr().err
    )
    assert main([*command, "4", "--out", str(_written(path, whole).parent)]) == 0


def test_a_run_goes_on_without_its_lost_metrics(tiny, tmp_path):
    out = tmp_path / "run"
    assert main(["train", tiny, "--quiet", "--out", str(out)]) == 0
    (out / "metrics.jsonl").write_bytes(b"")
    assert main(["train", tiny, "--quiet", "--out", str(out), "--steps", "80"]) == 0
    steps = [line["step"] for line in read_metrics(out / "metrics.jsonl")]
    assert steps[0] > 60
    assert steps[-1] == 80


@pytest.mark.parametrize("other", [b"3", b"\xff", b"{}", b'{"step": "1", "seconds": 2}', b"[" * 100_000])
def test_what_follows_a_line_that_is_no_metrics_is_left_out(other, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1, "seconds": 0.5}\n' + other + b"\n")
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "seconds": 0.5}]


def _written(path, data):
    path.write_bytes(data)
    return path


def _without_moments(checkpoint):
    checkpoint.optimizer = {}


def _missing_moment(checkpoint):
    del checkpoint.optimizer[0]["square_avg"]


def _moment_of_another_shape(checkpoint):
    checkpoint.optimizer[0]["square_avg"] = torch.zeros(3)


def _moment_of_no_parameter(checkpoint):
    checkpoint.optimizer[99] = {key: t.clone() for key, t in checkpoint.optimizer[0].items()}


def _nan_weights(checkpoint):
    checkpoint.weights = {name: torch.full_like(t, math.nan) for name, t in checkpoint.weights.items()}


def _integer_weights(checkpoint):
    checkpoint.best_weights = {name: t.to(torch.int8) for name, t in checkpoint.best_weights.items()}


def _float_generator(checkpoint):
    checkpoint.generator = checkpoint.generator.float()


def _short_generator(checkpoint):
    checkpoint.generator = checkpoint.generator[:7]


def _index_beyond_the_epoch(checkpoint):
    checkpoint.progress.index = 10**9


def _negative_epoch(checkpoint):
    checkpoint.progress.epoch = -1


def _huge_model(checkpoint):
    checkpoint.model = {**checkpoint.model, "factors": [2**24, 2**24]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_without_moments, "optimizer: expected the state of rmsprop after 3 steps, got none"),
        (_missing_moment, "optimizer/0: expected step, square_avg, got step"),
        (_moment_of_another_shape, "optimizer/0/square_avg: expected shape "),
        (_moment_of_no_parameter, "optimizer/99: expected one of "),
        (_nan_weights, "expected finite values, got some that are not"),
        (_integer_weights, "expected torch.float32, got torch.int8"),
        (_float_generator, "generator: expected a state of torch's generator"),
        (_short_generator, "generator: expected a state of torch's generator"),
        (_index_beyond_the_epoch, "index: expected one of "),
        (_negative_epoch, "epoch: expected "),
        (_huge_model, "training cannot resume from it ("),
    ],
)
def test_a_checkpoint_that_lacks_something_is_refused_in_one_line(change, complaint, tiny, tmp_path, capsys):
    command = ["train", tiny, "--quiet", "--out", str(tmp_path / "run"), "--steps"]
    assert main([*command, "3"]) == 0
    path = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint = Checkpoint.load(path)
    change(checkpoint)
    checkpoint.save(path)
    assert main([*command, "6"]) == 2
    message = capsys.readouterr().err
    assert complaint in message
    assert message.count("\n") == 1
