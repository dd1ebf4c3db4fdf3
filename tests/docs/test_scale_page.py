"""The scripts on the page about scale are sound, as far as that can be told without a cluster."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kru.lab.cli import COMMANDS
from kru.lab.commands import sweep, train
from kru.lab.commands.recipe_options import parse_with_recipe

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
MODULES = {"train": train, "sweep": sweep}


def test_the_scripts_are_shell():
    assert len(SCRIPTS) == 2
    for script in SCRIPTS:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("line", re.findall(r"(?:-m |srun |`)kru (\w.*?)(?:`|\n\n|\n```)", PAGE, re.DOTALL))
def test_the_commands_have_these_options(line):
    name, *arguments = shlex.split(line.replace("\\\n", " ").replace('"$SLURM_ARRAY_TASK_ID"', "1"))
    assert name in COMMANDS
    if arguments:
        parse_with_recipe(MODULES[name].Options, name, arguments, "")
