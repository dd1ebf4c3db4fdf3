"""Spectral features beyond the laboratory's (tests/lab/tasks/test_mfcc.py compares those with Kaldi), and variants."""

import numpy as np
import pytest

from kru.sound import SoundFeatures, vary

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rate", [8000, 11_025, 44_100])
@pytest.mark.parametrize("kind", ["mfcc", "log-mel"])
def test_a_stream_of_windows_is_the_whole_sound(kind, rate) -> None:
    features = SoundFeatures.of(rate, kind)
    samples = RNG.normal(size=rate // 5)
    whole = features.transform(samples)
    assert whole.shape == (1 + (len(samples) - features.window) // features.hop, features.size)
    for frame, values in enumerate(whole):
        window = samples[frame * features.hop :][: features.window]
        np.testing.assert_allclose(features.of_windows(window), values, rtol=1e-12, atol=1e-12)
    both = features.of_channels(np.stack([samples, samples[::-1]]))
    np.testing.assert_array_equal(both[: features.size].T, whole)
    assert both.shape == (2 * features.size, len(whole))


def test_a_tone_is_loudest_in_its_filter() -> None:
    features = SoundFeatures.of(8000, "log-mel", filters=20)
    mel = 1127 * np.log1p(4000 / 700) / 21 * np.arange(1, 21)
    for number in (3, 10, 18):
        frequency = 700 * np.expm1(mel[number] / 1127)
        tone = np.sin(2 * np.pi * frequency * np.arange(800) / 8000)
        assert (features.transform(tone).argmax(1) == number).all()


def test_a_louder_sound_changes_the_energy_alone() -> None:
    features = SoundFeatures.of(8000)
    samples = RNG.normal(size=2000)
    change = features.transform(3 * samples) - features.transform(samples)
    np.testing.assert_allclose(change[:, :12], 0, atol=1e-9)
    np.testing.assert_allclose(change[:, 12], 2 * np.log(3))
    assert np.isfinite(features.transform(np.zeros(2000))).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "wavelets"}, "features: expected one of mfcc, log-mel, got 'wavelets'"),
        ({"window": 0.0}, "window: expected seconds, above 0 and at most 1, got 0.0"),
        ({"window": 25}, "window: expected seconds"),
        ({"rate": 8000.5}, "rate: expected a positive integer, got 8000.5"),
        ({"rate": 10}, "window: expected a positive integer, got 0"),
        ({"hop": 0.05}, "hop: expected at most the window, 200 samples, got 400"),
        ({"filters": 129}, "filters: expected at most 128, got 129"),
        ({"filters": 12}, "coefficients: expected fewer than the 12 filters, got 12"),
        ({"preemphasis": 2}, "preemphasis: expected 0 to 1, got 2"),
        ({"floor": 0}, "floor: expected above 0 and below 1, got 0"),
    ],
)
def test_settings_that_cannot_be(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        SoundFeatures.of(**{"rate": 8000, **settings})


def test_variants_differ_and_repeat() -> None:
    samples = RNG.normal(size=(2, 4000))
    variants = [vary(samples, 8000, np.random.default_rng(seed)) for seed in range(20)]
    lengths = [variant.shape[1] for variant in variants]
    assert all(len(variant) == 2 for variant in variants)
    assert 4000 / 1.15 - 1 <= min(lengths) < 4000 < max(lengths) <= 4000 / 0.85 + 1600
    np.testing.assert_array_equal(vary(samples, 8000, np.random.default_rng(3)), variants[3])
    assert np.isfinite(vary(np.zeros((1, 1)), 8000, np.random.default_rng(0))).all()
