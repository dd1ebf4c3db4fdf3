"""The features of TIMIT frames: 12 cepstral coefficients, log energy, and their first derivatives."""

from functools import cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from kru.lab.tasks.audio import SAMPLE_RATE

Array = NDArray[np.float64]

WINDOW = SAMPLE_RATE * 25 // 1000
HOP = SAMPLE_RATE * 10 // 1000
FEATURES = 26

_FFT = 512
_FILTERS = 26
_CEPSTRA = 12
_PREEMPHASIS = 0.97
_LIFTER = 22
_FLOOR = float(np.finfo(np.float32).eps)


def frame_count(samples: int) -> int:
    """How many whole windows of 25 ms, one every 10 ms, a recording holds."""
    return max(0, 1 + (samples - WINDOW) // HOP)


def frame_centres(frames: int) -> NDArray[np.int64]:
    """The sample in the middle of each window."""
    return WINDOW // 2 + HOP * np.arange(frames)


def features(samples: NDArray[np.int16]) -> Array:
    """(frames, 26): 12 MFCC, log energy, then the first derivatives of these 13."""
    static = cepstra_and_energy(samples)
    return np.concatenate([static, derivatives(static)], axis=1)


def cepstra_and_energy(samples: NDArray[np.int16]) -> Array:
    """(frames, 13): MFCC 1 to 12 and the log energy, of every whole window.

    With x the 400 samples of a window, on the scale of 16-bit integers:

    - log energy: ln sum_n x_n^2;
    - pre-emphasis y_n = x_n - 0.97 x_{n-1} inside the window (x_{-1} = x_0), times a Hamming window;
    - power spectrum |DFT_512(y)|^2 and from it m_j, the logarithms of 26 mel filters (`mel_filters`);
    - c_i = sqrt(2/26) sum_{j=1}^{26} m_j cos(pi i (j - 1/2) / 26) for i = 1 ... 12, times the lifter
      1 + 11 sin(pi i / 22).

    Logarithms are of at least 2^-23, so digital silence stays finite.
    """
    frames = frame_count(len(samples))
    windows = samples.astype(np.float64)[HOP * np.arange(frames)[:, None] + np.arange(WINDOW)]
    energy = np.log(np.maximum((windows**2).sum(axis=1, keepdims=True), _FLOOR))
    emphasised = windows - _PREEMPHASIS * np.concatenate([windows[:, :1], windows[:, :-1]], axis=1)
    spectrum = scipy.fft.rfft(emphasised * np.hamming(WINDOW), _FFT, axis=1)
    mel = np.log(np.maximum((spectrum.real**2 + spectrum.imag**2) @ mel_filters().T, _FLOOR))
    cepstra = scipy.fft.dct(mel, type=2, norm="ortho", axis=1)[:, 1 : _CEPSTRA + 1]
    lifter = 1 + _LIFTER / 2 * np.sin(np.pi * np.arange(1, _CEPSTRA + 1) / _LIFTER)
    return np.concatenate([cepstra * lifter, energy], axis=1)


@cache
def mel_filters() -> Array:
    """(26, 257): triangles on the mel scale, 1127 ln(1 + f / 700), evenly spread from 0 to 8000 Hz.

    Filter j rises from 0 at the centre of filter j - 1 to 1 at its own and falls to 0 at that of filter j +
    1, linearly in mel.
    """
    mel = 1127 * np.log1p(np.arange(_FFT // 2 + 1) * (SAMPLE_RATE / _FFT) / 700)
    spacing = mel[-1] / (_FILTERS + 1)
    centres = spacing * np.arange(1, _FILTERS + 1)[:, None]
    filters: Array = np.maximum(0, 1 - np.abs(mel - centres) / spacing)
    return filters


def derivatives(values: Array) -> Array:
    """The slope in time of the line fitted to five frames: d_t = sum_{k=1,2} k (v_{t+k} - v_{t-k}) / 10.

    Before the first and after the last frame their values are repeated.
    """
    padded = np.concatenate([values[:1], values[:1], values, values[-1:], values[-1:]])
    slopes: Array = (padded[3:-1] - padded[1:-3] + 2 * (padded[4:] - padded[:-4])) / 10
    return slopes
