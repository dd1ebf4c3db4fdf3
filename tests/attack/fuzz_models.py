"""Models in C for `make fuzz`: FOLDER. One folder for each of the layers and heads that the exporter knows."""

import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import kru
from kru.export import c99
from tests.export.cases import STREAMS, D, build


def models() -> dict[str, tuple[nn.Module, dict[str, Any]]]:
    """Modules, and what is around them."""
    found: dict[str, tuple[nn.Module, dict[str, Any]]] = {
        name: (build(make), {}) for name, make in STREAMS.items()
    }
    for name in ("complex", "lstm", "gru"):
        found[f"{name} symbols"] = (build(STREAMS[name]), {"symbols": True})
    torch.manual_seed(0)
    tagger = {"embedding": nn.Embedding(50, 40), "output": nn.Linear(24, 7), "probabilities": True}
    found["tagger"] = (kru.KRULSTM(40, 24), tagger)
    scaling: dict[str, Any] = {"scaling": ([0.0] * D, [1.0] * D), "differences": [1.0] * D, "mask": True}
    found["scaled"] = (
        kru.KRUGRU(3 * D, 12),
        {**scaling, "output": nn.Linear(12, 1), "target_scaling": ([1.0], [2.0])},
    )
    return found


def main(folder: Path) -> None:
    """The models, and beside them their names, one a line."""
    shutil.rmtree(folder, ignore_errors=True)
    names = []
    for name, (module, around) in models().items():
        for int8 in (False, True):
            label = name.replace(",", "").replace(" ", "-") + ("-int8" if int8 else "")
            c99(module, folder / label, int8=int8, **around)
            names.append(label)
    (folder / "names").write_text("\n".join(names) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
