"""The classification sets that come with aeon: EchoStateClassifier as it is, and the same read-out on ReservoirPy."""

import time
from typing import Any

import aeon.datasets
import numpy as np
import torch
from reservoir_contestants import Settings, Theirs

from kru.estimators.data import read_cases
from kru.reservoir import EchoStateClassifier

SETS = (
    "basic_motions",
    "japanese_vowels",
    "gunpoint",
    "italy_power_demand",
    "arrow_head",
    "osuleaf",
    "acsf1",
)
SEEDS = (1, 2, 3, 4, 5)


class PeerClassifier(EchoStateClassifier):  # type: ignore[misc]
    """The same scaling, pooling and read-out, with ReservoirPy's reservoir of the same settings."""

    def _pooled(self, cases: Any, washout: int, pooling: str) -> torch.Tensor:
        if not hasattr(self, "peer_"):
            settings = Settings(self.spectral_radius, self.input_scaling, self.leak, self.bias_scaling)
            self.peer_ = Theirs(cases.values.shape[2], self.units, settings, self.random_state)
        rows = []
        for b, length in enumerate(cases.lengths):
            inputs = self._inputs(cases.values[:length, b]).numpy()
            seen = np.concatenate([self.peer_.run(inputs), inputs], 1)[washout:]
            rows.append(np.concatenate([seen.mean(0), seen.std(0)]))
        return torch.from_numpy(np.stack(rows))


def classes() -> list[dict[str, Any]]:
    """Test accuracy of the default settings, and the CPU seconds of fit and score."""
    out = []
    for name in SETS:
        load = getattr(aeon.datasets, f"load_{name}")
        train, test = load(split="train"), load(split="test")
        row: dict[str, Any] = {"set": name, "train": len(train[1]), "test": len(test[1])}
        row["longest"] = int(read_cases(train[0]).lengths.max())
        for who, kind in (("kru", EchoStateClassifier), ("reservoirpy", PeerClassifier)):
            scores, seconds = [], []
            for seed in SEEDS:
                begun = time.thread_time()
                model = kind(random_state=seed).fit(*train)
                scores.append(float(model.score(*test)))
                seconds.append(time.thread_time() - begun)
            row[who] = {
                "mean": float(np.mean(scores)),
                "deviation": float(np.std(scores, ddof=1)),
                "seconds": float(np.median(seconds)),
            }
        text = ", ".join(
            f"{who} {100 * row[who]['mean']:.1f} ± {100 * row[who]['deviation']:.1f} in {row[who]['seconds']:.2g} s"
            for who in ("kru", "reservoirpy")
        )
        print(f"{name:22s} {text}", flush=True)
        out.append(row)
    return out
