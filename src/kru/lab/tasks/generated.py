"""The splits of the two generated problems: 100,000 training, 10,000 validation and 10,000 test sequences."""

import numpy as np
from numpy.typing import NDArray

from kru.training.task import Split

_BEGIN: dict[Split, int] = {"train": 0, "valid": 100_000, "test": 110_000}
_SIZE: dict[Split, int] = {"train": 100_000, "valid": 10_000, "test": 10_000}

LONGEST = 10**9
"""The largest T; all the sequences' random words are then still numbered by 64 bits."""


def generated_size(split: Split) -> int:
    return _SIZE[split]


def global_indices(split: Split, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of sequences in one row of all 120,000, so that no sequence belongs to two splits."""
    return indices + _BEGIN[split]


def check_generated(T: int, shortest: int, seed: int) -> None:
    if shortest > T:
        raise ValueError(f"T: expected at least {shortest}, got {T}")
    if T > LONGEST:
        raise ValueError(f"T: expected at most {LONGEST:,}, got {T}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: expected 0 to 2^63 - 1, got {seed}")
