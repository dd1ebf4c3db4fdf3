"""What 8-bit weights and activations cost in accuracy: exported C on test data, in float and rounded.

    .venv/bin/python benchmarks/int8.py --data-dir DIR     # writes results/benchmarks/int8.json

Music on its whole test split; permuted MNIST on the first 1,000 test images.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from streams import CModel

from kru.lab.result import commit, machine, read_weights
from kru.training.task import Score

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "int8.json"
MODELS = {"music/jsb-kru": 0, "music/jsb-kru-lstm": 0, "mnist/pmnist-kru": 1000}
"""Recorded weights, and how many test sequences; 0 for all."""
VARIANTS = {
    "float": {},
    "int8 weights": {"int8": True},
    "int8 weights and activations": {"int8": True, "activations": True},
}


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    rows = []
    for name, count in MODELS.items():
        recipe, model = read_weights(arguments.results / f"{name}-seed1.safetensors")
        task = recipe.task.load(arguments.data_dir)
        sequences = np.arange(count or task.size("test"))
        for variant, options in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                compiled = CModel(model, Path(folder) / "c", **options)
                score = Score()
                for part in np.array_split(sequences, -(-len(sequences) // 50)):
                    batch = task.take("test", part)
                    score += task.score(compiled(batch.inputs)[0], batch)
            row = {
                "model": name.partition("/")[2],
                "variant": variant,
                "measure": task.measure.name,
                "sequences": len(sequences),
                "test": score.value,
                "weight_bytes": compiled.export.weight_bytes,
            }
            rows.append(row)
            print(f"| {row['model']} | {variant} | {row['weight_bytes']:,} | {score.value:.4f} |", flush=True)
    command = " ".join(["python", *sys.argv])
    OUT.write_text(
        json.dumps({"command": command, "commit": commit(), "machine": machine(), "rows": rows}, indent=1)
        + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
