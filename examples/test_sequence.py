"""Print a test sequence of the problem that weights were trained on, a line for each step, as the model reads it.

.venv/bin/python examples/test_sequence.py results/mnist/pmnist-kru-seed1 7 --data-dir DIR
"""

import argparse
import sys
from pathlib import Path

from kru.lab.data import DataError
from kru.lab.report.inspect import weights_path
from kru.lab.result import read_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, help="such as results/mnist/pmnist-kru-seed1")
    parser.add_argument("index", type=int, help="which of the test sequences, from 0")
    parser.add_argument(
        "--data-dir", type=Path, help="data directory; default: KRU_DATA, else the user's cache"
    )
    arguments = parser.parse_args()
    try:
        recipe, _ = read_weights(weights_path(arguments.weights))
        batches = recipe.task.load(arguments.data_dir).eval_batches("test", 1)
        if not 0 <= arguments.index < len(batches):
            raise ValueError(f"index: expected 0 to {len(batches) - 1}, got {arguments.index}")
    except (DataError, ValueError) as error:
        sys.exit(f"test_sequence.py: {error}")
    batch = batches[arguments.index]
    for step in batch.inputs[:, 0].tolist():
        print(*step if isinstance(step, list) else [step])
    if batch.targets.dim() == 1:
        print(f"the right answer: {batch.targets.item()}", file=sys.stderr)


if __name__ == "__main__":
    main()
