"""The forms of data, and what is said of bad data."""

import numpy as np
import pandas as pd
import pytest

from kru.estimators.data import Cases, align, is_table, read_cases, read_symbols
from kru.estimators.scaling import Scaling
from kru.estimators.vocabulary import Vocabulary, pad


def same(a: Cases, b: Cases) -> bool:
    return np.array_equal(a.values, b.values, equal_nan=True) and np.array_equal(a.lengths, b.lengths)


def test_all_forms_are_one():
    X = np.random.default_rng(0).normal(size=(4, 2, 5))
    cases = read_cases(X)
    assert cases.values.shape == (5, 4, 2)
    np.testing.assert_array_equal(cases.values[3, 1], X[1, :, 3])
    assert same(cases, read_cases(list(X)))
    assert same(cases, read_cases(X.tolist()))
    objects = np.empty(4, dtype=object)
    objects[:] = list(X)
    assert same(cases, read_cases(objects))
    rows = [(f"c{i}", t, *X[i, :, t]) for i in range(4) for t in range(5)]
    long = pd.DataFrame(rows, columns=["case", "time", "a", "b"])
    assert same(cases, read_cases(long))
    assert same(cases, read_cases(long.set_index(["case", "time"])))


def test_long_frames_are_sorted_by_time_and_cases_keep_their_order():
    frame = pd.DataFrame({"case": ["z", "z", "a", "z"], "time": [3, 1, 1, 2], "v": [30.0, 10.0, 5.0, 20.0]})
    cases = read_cases(frame)
    assert cases.names == ["z", "a"]
    assert cases.lengths.tolist() == [3, 1]
    assert cases.values[:, :, 0].tolist() == [[10, 5], [20, 0], [30, 0]]
    assert align(pd.Series({"a": 1, "z": 2}), cases).tolist() == [2, 1]
    assert align([7, 8], cases) == [7, 8]


def test_one_channel():
    X = np.arange(6.0).reshape(2, 3)
    assert same(read_cases(X), read_cases(X[:, None]))
    assert same(read_cases([X[0], X[1][:2]]), read_cases([X[:1], X[1:, :2]]))
    assert is_table(pd.DataFrame(X))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "X: expected at least one case, got none"),
        ([np.ones((2, 3)), np.ones((1, 3))], "X: expected 2 channels in every case, got 1 in case 1"),
        (
            [np.ones((1, 3)), np.ones((1, 0))],
            "X: expected at least one time step in every case, got none in case 1",
        ),
        (
            [np.ones((1, 3)), [[1.0, np.nan]]],
            "got NaN in case 1, channel 0, time 1; missing='mask' accepts NaN",
        ),
        (np.full((1, 1, 2), np.inf), "X: expected finite values, got infinity in case 0, channel 0, time 0"),
        (np.ones((1, 1, 1, 1)), r"X: expected \(cases, channels, time\) or \(cases, time\), got shape"),
        ([np.ones((1, 1, 1))], r"X\[0\]: expected \(channels, time\) or \(time,\), got shape"),
        ([["a", "b"], ["c"]], r"X\[0\]: expected an array of numbers"),
        (
            pd.DataFrame({"case": [5, 5], "time": [1, 1], "v": [1.0, 2.0]}),
            "X: expected one row for each time, got two of time 1 in case 5",
        ),
        (
            pd.DataFrame({"case": [5], "time": [1], "v": ["x"]}),
            "X: expected numbers in column 'v', got values of type",
        ),
        (pd.DataFrame({"case": [5], "time": [1]}), "X: expected at least one column besides case and time"),
    ],
)
def test_bad_data_is_named(X, message):
    with pytest.raises(ValueError, match=message):
        read_cases(X)


def test_symbols():
    assert read_symbols([(1, 2), np.array([3])]) == [[1, 2], [3]]
    with pytest.raises(ValueError, match=r"got 1\.5 in case 1, step 0"):
        read_symbols([[1], [1.5]])
    with pytest.raises(ValueError, match="got none in case 0"):
        read_symbols([""])
    vocabulary = Vocabulary.of([3, "b", 1, "a", 3])
    assert vocabulary.symbols == (1, 3, "a", "b")
    symbols, lengths = pad([vocabulary.encode(["b", 1]), vocabulary.encode(["?"])])
    assert symbols.tolist() == [[3, 4], [0, 0]]
    assert lengths.tolist() == [2, 1]


def test_scaling_standardises_real_steps_only():
    rng = np.random.default_rng(0)
    X = [rng.normal(5, 3, size=(2, n)) for n in (20, 30)]
    cases = read_cases(X)
    inputs = Scaling.fit(cases, differences=True).transform(cases)
    real = inputs[cases.real()]
    np.testing.assert_allclose(real[:, :2].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(real[:, :2].std(0), 1, atol=1e-6)
    assert not inputs[~cases.real()].any()
    assert not inputs[0, :, 2:].any()
    changes = np.concatenate([np.diff(inputs[:n, i, :2], axis=0) for i, n in enumerate((20, 30))])
    np.testing.assert_allclose(
        np.concatenate([inputs[1:n, i, 2:] for i, n in enumerate((20, 30))]),
        changes / np.sqrt((changes**2).mean(0)),
        rtol=1e-4,
        atol=1e-5,
    )


def test_large_offsets_keep_their_digits():
    X = 1e9 + np.random.default_rng(0).normal(size=(3, 1, 50))
    inputs = Scaling.fit(read_cases(X)).transform(read_cases(X))
    np.testing.assert_allclose(inputs[:, :, 0].T, (X[:, 0] - X.mean()) / X.std(), atol=1e-5)


def test_missing_values_are_marked_and_constant_channels_are_left():
    X = np.array([[[1.0, np.nan, 3.0], [7.0, 7.0, 7.0]]])
    cases = read_cases(X, missing="mask")
    scaling = Scaling.fit(cases, differences=True, mask=True)
    assert scaling.size == 6
    inputs = scaling.transform(cases)[:, 0]
    assert inputs[:, 0].tolist() == [-1, 0, 1]
    assert not inputs[:, 1].any()
    assert not inputs[:, 2:4].any()  # both changes touch the missing value
    assert inputs[:, 4].tolist() == [0, 1, 0]
