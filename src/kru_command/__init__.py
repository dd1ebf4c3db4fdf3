"""Where the command `kru` starts: outside of the package kru, whose import loads torch, so that help comes at once."""

import os
import sys
from typing import NamedTuple


class Command(NamedTuple):
    """A command: the function `run` of a module takes its arguments and returns the exit code."""

    module: str
    help: str


# Each command's module is imported when it is called.
COMMANDS = {
    "fit": Command("kru.lab.commands.fit", "fit a model to data of your own: tables, arrays, sounds, text"),
    "predict": Command(
        "kru.lab.commands.predict", "write the predictions of a fitted model for a file, as CSV"
    ),
    "generate": Command("kru.lab.commands.generate", "generate text with a fitted language model"),
    "train": Command("kru.lab.commands.train", "train a model from a recipe, or resume an interrupted run"),
    "recipes": Command(
        "kru.lab.commands.recipes", "list the recipes, with parameter counts and expected minutes"
    ),
    "evaluate": Command(
        "kru.lab.commands.evaluate", "evaluate a fitted model on a file, or weights on the test set"
    ),
    "results": Command(
        "kru.lab.commands.results", "print the paper's tables, with our figures next to the paper's"
    ),
    "plot": Command("kru.lab.commands.plot", "draw learning curves and wall-clock curves as PNG and SVG"),
    "inspect": Command(
        "kru.lab.commands.inspect", "show parameter counts, spectrum and distance from unitary of a run"
    ),
    "reproduce": Command(
        "kru.lab.commands.reproduce", "run everything behind a table or figure of the paper"
    ),
    "study": Command(
        "kru.lab.commands.study", "vary one setting over several seeds, as in the last section of the paper"
    ),
    "sweep": Command(
        "kru.lab.commands.sweep", "search for good settings of a recipe, with any number of workers"
    ),
    "compress": Command(
        "kru.lab.commands.compress", "replace the recurrent matrices of a trained model by small factors"
    ),
    "export": Command(
        "kru.lab.commands.export", "export a model as C99, JavaScript, ONNX or torch.export programs"
    ),
    "data": Command("kru.lab.commands.data", "list, download, check and generate data"),
    "doctor": Command(
        "kru.lab.commands.doctor", "report what is slow or missing on this machine, and how to fix it"
    ),
}


def main() -> int:
    """Answer `kru --help`, or hand the arguments on to `kru.lab.cli`."""
    if sys.argv[1:] and sys.argv[1] not in ("-h", "--help"):
        from kru.lab import cli

        return cli.main()
    try:
        print(usage(), flush=True)
    except BrokenPipeError:
        discard_output()
    return 0


def usage() -> str:
    """What `kru --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [
        "usage: kru COMMAND ...",
        "",
        "Fit recurrent networks with Kronecker factors to your own data, or reproduce the paper.",
        "",
    ]
    lines += [f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items()]
    lines += [
        "",
        "`kru COMMAND --help` lists the options of a command.",
        "To start: kru fit DATA -o MODEL, or kru train copy-1000-kru",
        "`kru COMMAND --import MODULE ...` imports a module with your own models and tasks first.",
    ]
    return "\n".join(lines)


def discard_output() -> None:
    """After the reader of the output, such as `head`, has left: write nothing more, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
