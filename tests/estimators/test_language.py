"""Language models of characters and bytes."""

import itertools
import math

import pytest
import torch

from kru.estimators import KRULanguageModel, load

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "the cat sat on the mat. " * 60


def small(**changes: object) -> KRULanguageModel:
    return KRULanguageModel(
        **{"units": 32, "steps": 200, "learning_rate": 0.02, "random_state": 0, **changes}
    )


@pytest.fixture(scope="module")
def model():
    return small().fit(TEXT)


def test_it_learns_and_the_vocabulary_comes_back_from_a_file(model, tmp_path):
    assert model.bits_per_character(TEXT) < 1
    assert model.loss_ < 1.5
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.vocabulary_ == model.vocabulary_
    assert loaded.bits_per_character(TEXT[:50]) == model.bits_per_character(TEXT[:50])
    assert loaded.sample("the ", 30, random_state=3) == model.sample("the ", 30, random_state=3)


def test_factors_are_of_middle_size_unless_given():
    assert small(units=64, steps=1).fit(TEXT).network_settings_.factors == (4, 16)
    assert small(units=64, steps=1, factors=[8, 8]).fit(TEXT).network_settings_.factors == (8, 8)
    assert small(units=34, steps=1).fit(TEXT).network_settings_.factors == ()


def test_bits_are_those_of_the_predictions_one_by_one(model):
    text = "the cat?"  # the question mark is unknown
    codes = [model.vocabulary_.size - 1, *model.vocabulary_.encode(text)]
    state, bits = None, 0.0
    with torch.inference_mode():
        for before, code in itertools.pairwise(codes):
            outputs, state = model.network_.layer.step(torch.tensor([before]), state)
            bits -= model.network_.output(outputs).log_softmax(-1)[0, code].item() / math.log(2)
    assert model.bits_per_character(text) == pytest.approx(bits / len(text), rel=1e-5)


def test_samples(model):
    assert model.sample("the c", 20, temperature=0) == model.sample("the c", 20, top_k=1, random_state=9)
    assert model.sample(length=50, random_state=1) != model.sample(length=50, random_state=2)
    assert set(model.sample(length=200, temperature=5.0, random_state=1)) <= set(TEXT)
    with pytest.raises(ValueError, match="temperature: expected at least 0, got -1"):
        model.sample("a", 1, temperature=-1)
    with pytest.raises(ValueError, match="top_k: expected at least 1, got 0"):
        model.sample("a", 1, top_k=0)


def test_bytes_of_any_text():
    text = "naïve café ☕ " * 30
    model = small(symbols="bytes", steps=30).fit(text)
    assert model.vocabulary_.symbols == tuple(sorted(set(text.encode())))
    sample = model.sample(b"na", 10, random_state=0)
    assert isinstance(sample, bytes)
    assert len(sample) == 10


def test_seeds_and_warm_start():
    first, second = small(steps=20).fit(TEXT), small(steps=20).fit(TEXT)
    for a, b in zip(first.network_.state_dict().values(), second.network_.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    before = first.bits_per_character(TEXT)
    first.set_params(warm_start=True, steps=100).fit(TEXT)
    assert first.bits_per_character(TEXT) < before


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("a", ValueError, "X: expected a text of at least two symbols, got 1"),
        (["a", "b"], TypeError, "X: expected a text, got list"),
        (b"ab", TypeError, 'X: expected a str, or symbols="bytes", got bytes'),
    ],
)
def test_bad_texts_are_named(X, error, message):
    with pytest.raises(error, match=message):
        small().fit(X)
