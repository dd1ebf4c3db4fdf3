"""The page about data of one's own: its commands, its program in C and its Python run, and they agree."""

import csv
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.io.wavfile

from kru.lab.cli import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")


def write_motions(path: Path, cases: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lines, sequences = ["case,time,x,y,label"], {}
    for case in range(cases):
        label, speed = ("slow", 0.2) if case % 2 else ("fast", 0.5)
        time = np.arange(20 + rng.integers(10))
        values = np.stack([20 + 3 * np.sin(speed * time + rng.uniform(0, 6)), np.cos(speed * time)]).round(4)
        sequences[f"walk{case}"] = values
        lines += [f"walk{case},{t},{values[0, t]},{values[1, t]},{label}" for t in time]
    path.write_text("\n".join(lines) + "\n")
    return sequences


def write_hums(folder: str, file: str) -> None:
    for index in range(10):
        label, pitch = ("low", 0.2) if index % 2 else ("high", 0.9)
        samples = (8000 * np.sin(pitch * np.arange(1000))).astype(np.int16)
        path = Path(folder.format(label)) / (file.format(index // 2, label) + ".wav")
        path.parent.mkdir(parents=True, exist_ok=True)
        scipy.io.wavfile.write(path, 8000, samples)


@pytest.mark.usefixtures("one_thread")
def test_the_page_runs(tmp_path, monkeypatch, capsys) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    monkeypatch.chdir(tmp_path)
    write_motions(Path("motions.csv"), 20, 0)
    sequences = write_motions(Path("new.csv"), 10, 1)
    days = [f"2024-{1 + i // 28:02d}-{1 + i % 28:02d},{10 + (i % 7)}" for i in range(100)]
    Path("sales.csv").write_text("day,sold\n" + "\n".join(days) + "\n")
    Path("book.txt").write_text("the cat sat on the mat. " * 40)
    for folder, file in (("sounds/{}", "{}"), ("new-sounds/{}", "{}"), ("recordings", "{1}_{0}")):
        write_hums(folder, file)
    shutil.copy("sounds/low/0.wav", "one-recording.wav")
    [program] = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    Path("main.c").write_text(program)
    count = 0
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        for line in block.strip().splitlines():
            words = shlex.split(line)
            if words[0] == "cc":
                subprocess.run(words, check=True, timeout=120)
                continue
            assert words[0] == "kru"
            assert words[1] in COMMANDS
            # A shorter training than a user would want.
            short = ["--steps", "40", "--quiet"] if words[1] == "fit" else []
            assert main([*words[1:], *short]) == 0, capsys.readouterr().err
            count += 1
    assert count == 12
    shown = capsys.readouterr().out
    assert re.search(r"accuracy (1|0\.9) on new\.csv", shown)
    assert re.search(r"accuracy (1|0\.9) on new-sounds", shown)
    assert "one-recording.wav,low" in shown
    with open("predictions.csv", newline="") as file:
        predicted = {row["case"]: row["prediction"] for row in csv.DictReader(file)}
    assert predicted.keys() == sequences.keys()
    assert set(predicted.values()) == {"slow", "fast"}
    for name, values in sequences.items():
        numbers = " ".join(str(value) for value in values.T.ravel())
        said = subprocess.run(["./classify"], input=numbers, capture_output=True, text=True, timeout=60)
        assert said.stdout.strip() == predicted[name]
    names: dict[str, object] = {}
    for python in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(python.replace("(random_state=0", "(random_state=0, steps=5"), names)
    assert Path("python-device/model.c").exists()
