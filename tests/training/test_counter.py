import numpy as np

from kru.training import counter


def test_words_are_those_of_splitmix64() -> None:
    # The known first outputs of SplitMix64 from the state 1234567.
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert counter.random_words(1234567, np.arange(5)).tolist() == expected


def test_any_word_alone() -> None:
    row = counter.random_words(9, np.arange(1000))
    assert counter.random_words(9, np.array([[999], [5]])).tolist() == [[int(row[999])], [int(row[5])]]


def test_keys_differ() -> None:
    keys = {counter.derive_key(a, b) for a in range(30) for b in range(30)}
    assert len(keys) == 900
    assert counter.derive_key(7) == int(counter.random_words(7, np.zeros(1, np.int64))[0])


def test_uniform_and_below() -> None:
    words = counter.random_words(3, np.arange(200_000))
    numbers = counter.uniform(words)
    assert numbers.dtype == np.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.003
    counts = np.bincount(counter.below(words, 7), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts / 200_000 - 1 / 7).max() < 0.004


def test_permutation() -> None:
    order = counter.permutation(5, 1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != counter.permutation(6, 1000).tolist()
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1


def test_scramble_is_one_to_one() -> None:
    for half_bits in (1, 4, 6):
        size = 4**half_bits
        assert sorted(counter.scramble(1, np.arange(size), half_bits).tolist()) == list(range(size))
