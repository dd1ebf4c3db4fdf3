import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kru.lab.cli import COMMANDS, main


def one_line(capsys):
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dance"], r"kru dance: no command 'dance'; expected one of fit, predict"),
        (
            ["trian"],
            r"kru trian: no command 'trian' \(did you mean train\?\); expected one of fit, predict",
        ),
        (["train"], r"kru train: expected the name of a recipe first"),
        (["train", "--seed", "3"], r"kru train: expected the name of a recipe first"),
        (["train", "copy-1000-transformer"], r"no recipe 'copy-1000-transformer' \(there are copy-1000-"),
        (["train", "missing.toml"], r"no file missing\.toml"),
        (
            ["train", "copy-1000-kru", "--sed", "3"],
            r"Unrecognized options: --sed, 3 \(did you mean --seed\?\)$",
        ),
        (["train", "jsb-krulstm"], r"no recipe 'jsb-krulstm' \(did you mean jsb-kru-lstm\?\)"),
        (
            ["train", "copy-1000-kru", "--checkpoint-seconds", "nan"],
            r"checkpoint-seconds: expected at least 0",
        ),
        (
            ["train", "copy-1000-kru", "--model.hidden-size", "9" * 30],
            r"model.hidden-size: expected 1 to 2\^24",
        ),
        (["train", "copy-1000-kru", "--model.rank", "9" * 30], r"model.rank: expected 1 to 2\^24, got 999"),
        (["train", "copy-1000-kru", "--task.T", "9" * 30], r"T: expected at most 1,000,000,000, got 999"),
        (["train", "x" * 300 + ".toml"], r"toml: File name too long"),
        (["data", "list", "--data-dir", "x" * 300], r"gz: File name too long"),
        (["train", "copy-1000-kru", "--steps", "many"], r"--steps: invalid literal"),
        (["train", "copy-1000-kru", "--steps", "-1"], r"steps: expected at least 0, got -1"),
        (["train", "copy-1000-kru", "--steps", "0"], r"budget: expected at least one of steps, epochs"),
        (["train", "copy-1000-kru", "--optimizer.lr", "0"], r"optimizer.lr: expected above 0, got 0.0"),
        (["train", "copy-1000-kru", "--optimizer.name", "sgd"], r"invalid choice|sgd"),
        (["train", "copy-1000-kru", "--model.kind", "mamba"], r"model.kind: expected one of kru, "),
        (["train", "copy-1000-kru", "--model.factors", "3"], r"factors"),
        (["train", "copy-1000-kru", "--task.T", "0"], r"T: expected"),
        (["train", "copy-1000-kru", "--resume"], r"no checkpoint to resume from"),
        (
            ["train", "jsb-kru", "--data-dir", "nowhere"],
            r"JSB_Chorales.mat: missing; run `kru data fetch jsb`",
        ),
        (["recipes", "imagenet"], r"no recipe begins with 'imagenet'"),
        (["evaluate", "nothing"], r"nothing: no such weights"),
        (["evaluate"], r"WEIGHTS"),
        (["inspect", "nothing"], r"nothing: no such weights"),
        (["results", "--results", "nowhere"], r"nowhere: no such folder; record runs in it by kru train"),
        (["plot", "--results", "nowhere"], r"nowhere: no such folder"),
        (["plot", "musik"], r"figure: expected one of copy, .*, got 'musik' \(did you mean music\?\)"),
        (["results", "musik"], r"target: expected one of copy, .*, got 'musik' \(did you mean music\?\)"),
        (["reproduce", "musik"], r"target: expected one of copy, .*, got 'musik' \(did you mean music\?\)"),
        (["train", "copy-1000-kru", "--steps", "-1" + "0" * 400], r"steps: expected at least 0, got -1000"),
        (["reproduce", "everything"], r"target: expected one of copy, adding, .*, got 'everything'"),
        (["reproduce"], r"TARGET"),
        (["data", "eat"], r"no action 'eat'; expected one of list, fetch, check, generate"),
        (["data", "fetch", "imagenet"], r"data set: expected one of mnist, .*, got 'imagenet'"),
        (["data", "check", "imagenet"], r"data set: expected one of mnist"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert re.search(message, one_line(capsys))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "binary.toml"], r"binary\.toml: expected a TOML file in UTF-8"),
        (
            ["train", "copy-1000-kru", "--steps", "1", "--out", "binary.toml"],
            r"binary\.toml: expected a folder",
        ),
        (
            ["train", "copy-1000-kru", "--steps", "1", "--out", "binary.toml/x"],
            r"binary\.toml/x: expected a folder",
        ),
    ],
)
def test_files_of_the_wrong_kind_are_one_line_and_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("binary.toml").write_bytes(bytes(range(128, 256)))
    assert main(arguments) == 2
    assert re.search(message, one_line(capsys))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x.json"), 1, "x.json: No space left on device"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), b"x.json"), 2, "x.json: Permission denied"),
        (OSError("strange"), 1, "strange"),
        (MemoryError("Unable to allocate 9 TiB"), 1, "not enough memory (Unable to allocate 9 TiB)"),
        (MemoryError(), 1, "not enough memory"),
        (OverflowError("int too big to convert"), 2, "int too big to convert"),
        (RuntimeError(), 1, "RuntimeError"),
    ],
)
def test_what_the_system_refuses_is_one_line(error, code, message, capsys, monkeypatch):
    def refused(arguments):
        raise error

    monkeypatch.setattr("kru.lab.commands.recipes.run", refused)
    assert main(["recipes"]) == code
    assert one_line(capsys) == f"kru recipes: {message}"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["data"], ["data", "--help"]])
def test_usage(arguments, capsys):
    assert main(arguments) == 0
    assert "usage: kru" in capsys.readouterr().out


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS if name != "data"), ["data", "fetch"]])
def test_help_of_every_command(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: kru {' '.join(command)}")
    assert len(shown.splitlines()) > 6


def test_help_of_a_recipe_shows_its_settings(capsys):
    with pytest.raises(SystemExit):
        main(["train", "ptb-large-kru", "--help"])
    shown = capsys.readouterr().out
    assert "--task.bptt INT" in shown
    assert re.search(r"default: 3\W+331", shown)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert re.match(r"kru \d+\.\d+\.\d+\ntorch \d", capsys.readouterr().out)


def test_recipes_are_listed_with_parameters(capsys):
    assert main(["recipes", "pmnist"]) == 0
    lines = capsys.readouterr().out.splitlines()
    kru = next(line.split() for line in lines if line.startswith("pmnist-kru "))
    assert kru[1:5] == ["kru", "512", "11,858", "72"]
    assert len(lines) >= 7


def test_data_commands(tmp_path, capsys):
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    assert "music/JSB_Chorales.mat" in capsys.readouterr().out
    assert main(["data", "check", "jsb", "--data-dir", str(tmp_path)]) == 1
    assert "missing" in capsys.readouterr().out


def test_a_generated_corpus_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "generate", "corpus", "--sentences", "1"]) == 0
    small = ["--model.hidden-size", "4", "--model.factors", "2", "2", "--steps", "3", "--quiet"]
    assert main(["train", "timit-kru", "--task.corpus", "corpus", *small]) == 0
    assert "frame accuracy" in capsys.readouterr().out
    assert main(["data", "generate", "corpus"]) == 2


def test_output_into_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m kru recipes | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("recipe")
    assert done.stderr == ""
