"""A character model of the Python reference that comes with Python: bits per character, samples and the exported C.

    .venv/bin/python benchmarks/text.py   # writes results/benchmarks/text.json

The text is what `help()` shows on topics, in every installation of Python. Every tenth topic is kept for testing; the
model holds out five per cent of the others to choose its weights. Seconds are CPU time of one thread.
"""

import argparse
import bz2
import tempfile
import time
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from cells import Cells
from programs import compiled_sizes

from kru.estimators import KRULanguageModel
from kru.export import c99

COMMAND = ".venv/bin/python benchmarks/text.py"
STEPS = 2000
PROMPTS = ("The following ", "Note that ", ">>> ")


def texts() -> tuple[str, str]:
    """The text to train on, and the text to test with."""
    names = sorted(topics)
    return tuple(  # type: ignore[return-value]
        "\n".join(topics[name] for index, name in enumerate(names) if (index % 10 == 9) == test)
        for test in (False, True)
    )


def cell(kind: str, steps: int) -> dict[str, Any]:
    train, test = texts()
    settings: dict[str, Any] = {} if kind == "kru-gru" else {"kind": kind, "units": SAME_SIZE[kind]}
    model = KRULanguageModel(steps=steps, random_state=0, **settings)
    begin = time.thread_time()
    model.fit(train)
    seconds = time.thread_time() - begin
    with tempfile.TemporaryDirectory() as folder:
        size = compiled_sizes(c99(model, Path(folder) / "c").files[1])
    packed = [len(bz2.compress(text.encode())) for text in (train + test, train)]
    return {
        "kind": kind,
        "steps": steps,
        "characters": [len(train), len(test)],
        "symbols": len(set(train)),
        "parameters": model.n_parameters_,
        "train_seconds": round(seconds, 1),
        "valid": model.loss_,
        "test": model.bits_per_character(test),
        "bzip2": 8 * (packed[0] - packed[1]) / len(test),
        "c_bytes": size,
        "samples": [
            model.sample(prompt, length=240, temperature=0.6, top_k=10, random_state=0) for prompt in PROMPTS
        ],
    }


SAME_SIZE = {"gru": 106, "lstm": 90}
"""Units with which a dense layer has as many parameters as the default, about 76,000."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", default=["kru-gru"], choices=["kru-gru", "gru", "lstm"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cells = Cells(arguments.out / "text.json", COMMAND, ("kind", "steps"))
    for kind in arguments.kinds:
        cells.add(partial(cell, kind, arguments.steps), kind, arguments.steps)


if __name__ == "__main__":
    main()
