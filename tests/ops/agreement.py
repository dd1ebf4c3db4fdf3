"""A script: compare some hundred random cases of both operations, for processes with another environment.

It prints the instruction set in use when all of them agree. With `--fill` fresh tensors are full of NaN.
"""

import random
import sys

import torch
from kron_cases import assert_dense, random_kron_case
from scan_cases import assert_three_ways, random_scan_case

from kru.ops import native

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms("--fill" in sys.argv)
    rng = random.Random(7)
    for _ in range(150):
        assert_dense(random_kron_case(rng))
    for _ in range(80):
        assert_three_ways(random_scan_case(rng))
    print(native.simd())
