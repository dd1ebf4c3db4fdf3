"""A script: compare some hundred random cases of both operations, for processes with another environment.

It prints the instruction set in use when all of them agree. With `--fill` fresh tensors are full of NaN,
with `--few` there are fewer cases.
"""

import random
import sys

import torch
from kron_cases import assert_dense, random_kron_case
from scan_cases import assert_three_ways, random_scan_case

from kru.ops import bindings

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms("--fill" in sys.argv)
    rng = random.Random(7)
    count = 20 if "--few" in sys.argv else 60
    for _ in range(2 * count):
        assert_dense(random_kron_case(rng))
    for _ in range(count):
        assert_three_ways(random_scan_case(rng))
    print(bindings.simd())
