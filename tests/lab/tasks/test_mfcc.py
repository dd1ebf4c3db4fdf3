"""The features against Kaldi's, where kaldi-native-fbank is installed, and against their definition."""

import cmath
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
from numpy.typing import NDArray

from kru.lab.tasks import mfcc
from kru.lab.tasks.speech_files import open_corpus

RNG = np.random.default_rng(0)


def speech_like(samples: int) -> NDArray[np.int16]:
    time = np.arange(samples) / 16_000
    sound = 3000 * np.sin(2 * np.pi * 220 * time * (1 + time)) + 900 * np.sin(2 * np.pi * 2500 * time)
    return (sound + 200 * RNG.standard_normal(samples)).astype(np.int16)


def by_definition(x: list[float]) -> list[float]:
    """The 13 values of one window of 400 samples, term by term."""
    energy = math.log(sum(v * v for v in x))
    y = [x[n] - 0.97 * x[max(n - 1, 0)] for n in range(400)]
    y = [y[n] * (0.54 - 0.46 * math.cos(2 * math.pi * n / 399)) for n in range(400)]
    power = [
        abs(sum(y[n] * cmath.exp(-2j * math.pi * k * n / 512) for n in range(400))) ** 2 for k in range(257)
    ]
    mel = [1127 * math.log(1 + k * 16_000 / 512 / 700) for k in range(257)]
    edges = [j * 1127 * math.log(1 + 8000 / 700) / 27 for j in range(28)]
    logs = []
    for j in range(1, 27):
        total = 0.0
        for k in range(257):
            if edges[j - 1] < mel[k] <= edges[j]:
                total += power[k] * (mel[k] - edges[j - 1]) / (edges[j] - edges[j - 1])
            elif edges[j] < mel[k] < edges[j + 1]:
                total += power[k] * (edges[j + 1] - mel[k]) / (edges[j + 1] - edges[j])
        logs.append(math.log(total))
    cepstra = []
    for i in range(1, 13):
        c = math.sqrt(2 / 26) * sum(
            logs[j - 1] * math.cos(math.pi * i * (j - 0.5) / 26) for j in range(1, 27)
        )
        cepstra.append(c * (1 + 11 * math.sin(math.pi * i / 22)))
    return [*cepstra, energy]


def test_against_the_definition() -> None:
    samples = speech_like(800)
    values = mfcc.STATIC.transform(samples)
    assert values.shape == (3, 13)
    for frame in range(3):
        expected = by_definition([float(v) for v in samples[160 * frame : 160 * frame + 400]])
        np.testing.assert_allclose(values[frame], expected, rtol=1e-9, atol=1e-9)


def kaldi(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    library = pytest.importorskip("kaldi_native_fbank", reason="kaldi-native-fbank is not installed")
    options = library.MfccOptions()
    frames, mel = options.frame_opts, options.mel_opts
    frames.samp_freq, frames.dither, frames.remove_dc_offset = 16_000, 0.0, False
    frames.window_type, frames.preemph_coeff, frames.snip_edges = "hamming", 0.97, True
    mel.num_bins, mel.low_freq, mel.high_freq = 26, 0, 8000
    options.num_ceps, options.cepstral_lifter = 13, 22
    options.use_energy, options.raw_energy, options.energy_floor = True, True, 0.0
    computer = library.OnlineMfcc(options)
    computer.accept_waveform(16_000, samples.astype(np.float32).tolist())
    computer.input_finished()
    values = np.stack([computer.get_frame(n) for n in range(computer.num_frames_ready)])
    return np.concatenate([values[:, 1:], values[:, :1]], axis=1)  # Kaldi puts the energy first


@pytest.mark.parametrize("count", [400, 559, 560, 20_000])
def test_against_kaldi(count: int) -> None:
    samples = speech_like(count)
    np.testing.assert_allclose(mfcc.STATIC.transform(samples), kaldi(samples), atol=2e-3, rtol=1e-4)


def test_real_speech_against_kaldi(real_data: Path) -> None:
    with open_corpus(real_data / "timit/timit_nltk_sample.zip") as utterances:
        for utterance in utterances[::40]:
            samples = utterance.samples()
            np.testing.assert_allclose(mfcc.STATIC.transform(samples), kaldi(samples), atol=5e-3, rtol=1e-4)


def test_derivatives_are_the_slopes_of_fitted_lines() -> None:
    values = RNG.standard_normal((30, 13))
    fitted = scipy.signal.savgol_filter(values, 5, 1, deriv=1, axis=0, mode="nearest")
    np.testing.assert_allclose(mfcc.derivatives(values), fitted, atol=1e-12)
    line = 3.0 * np.arange(10.0)[:, None]
    np.testing.assert_allclose(mfcc.derivatives(line)[2:-2], 3.0)
    assert mfcc.derivatives(values[:1]).tolist() == [[0.0] * 13]


def test_frames() -> None:
    assert [mfcc.STATIC.frame_count(samples) for samples in (0, 399, 400, 559, 560, 16_000)] == [
        0,
        0,
        1,
        1,
        2,
        98,
    ]
    assert mfcc.frame_centres(3).tolist() == [200, 360, 520]
    assert mfcc.features(speech_like(1000)).shape == (4, 26)
    assert mfcc.features(speech_like(100)).shape == (0, 26)


def test_silence_is_finite() -> None:
    assert np.isfinite(mfcc.features(np.zeros(1000, np.int16))).all()
