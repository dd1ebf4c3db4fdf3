"""Random numbers that are a pure function of a key and a counter.

The n-th word under a key is mix(key + (n + 1) gamma) modulo 2^64, the output function of SplitMix64. There is
no state to carry or save: any word can be computed on its own, independently of all others, on any machine
and with any version of the libraries. Data sets, orders of presentation and the fixed permutation of MNIST
are built from it.
"""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = 2**64 - 1


def derive_key(*words: int) -> int:
    """One key out of several non-negative integers, such as (purpose, seed, epoch).

    Each integer w turns the key k into the first word under the key k xor w.
    """
    key = 0
    for word in words:
        z = ((key ^ word) + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * _MULTIPLIERS[0]) & _MASK
        z = ((z ^ (z >> 27)) * _MULTIPLIERS[1]) & _MASK
        key = z ^ (z >> 31)
    return key


def random_words(key: int, counters: NDArray[np.integer]) -> Words:
    """Words of 64 random bits, one for each counter, in the shape of `counters`."""
    z = counters.astype(np.uint64)
    z += np.uint64(1)
    z *= np.uint64(_GAMMA)
    z += np.uint64(key)
    z ^= z >> np.uint64(30)
    z *= np.uint64(_MULTIPLIERS[0])
    z ^= z >> np.uint64(27)
    z *= np.uint64(_MULTIPLIERS[1])
    z ^= z >> np.uint64(31)
    return z


def uniform(words: Words) -> NDArray[np.float32]:
    """Numbers in [0, 1), multiples of 2^-24, of which float32 holds every one exactly."""
    return (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def below(words: Words, limit: int) -> NDArray[np.int64]:
    """Integers in [0, limit) for a limit far below 2^32: the upper half of each word, scaled."""
    return (((words >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)


def permutation(key: int, size: int) -> NDArray[np.int64]:
    """A random order of 0 ... size - 1: the ranks of as many random words."""
    return np.argsort(random_words(key, np.arange(size)), kind="stable").astype(np.int64)


def scramble(key: int, numbers: NDArray[np.integer], half_bits: int) -> Words:
    """A random one-to-one map of [0, 2^(2 half_bits)) onto itself: different numbers give different results.

    It is a Feistel network: (l, r) -> (r, l xor f_k(r)) is invertible for any f, and after a few rounds
    looks random.
    """
    mask = np.uint64(2**half_bits - 1)
    left, right = numbers.astype(np.uint64) >> np.uint64(half_bits), numbers.astype(np.uint64) & mask
    for round_number in range(6):
        left, right = right, left ^ (random_words(derive_key(key, round_number), right) & mask)
    return (left << np.uint64(half_bits)) | right
