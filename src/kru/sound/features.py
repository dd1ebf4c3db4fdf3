"""Spectral features of sound, a frame at a time: log mel spectra, and the cepstra made from them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

Array = NDArray[np.float64]

KINDS = ("mfcc", "log-mel")
BLOCK = 1024
"""Windows that are transformed at once: a long recording takes no more memory than a short one."""
LONGEST_WINDOW = 8192
"""Samples: more than 40 ms at 192 kHz. A window and its spectrum are in the memory of an exported program."""


@dataclass(frozen=True)
class SoundFeatures:
    """What a network reads of a sound: D values for each window of `window` samples, one window every `hop` samples.

    With x the W samples of a window:

    - pre-emphasis y_n = x_n - a x_{n-1} inside the window (x_{-1} = x_0), times a Hamming window;
    - power spectrum |DFT_M(y)|^2, M the next power of two, and from it the logarithms m_j of J mel filters;
    - "log-mel": these, D = J;
    - "mfcc": c_i = sqrt(2/J) sum_{j=1}^{J} m_j cos(pi i (j - 1/2) / J) for i = 1 ... K, times the lifter
      1 + L/2 sin(pi i / L), and the log energy ln sum_n x_n^2, D = K + 1.

    Logarithms are of at least `floor`, so that digital silence stays finite. Only whole windows are read: nothing
    depends on what comes later, and a stream gives the same values as a file.

    Attributes:
        rate: samples in a second.
        kind: "mfcc" or "log-mel".
        window, hop: W and the distance of two windows, in samples.
        filters: J.
        coefficients: K, of mfcc.
        preemphasis: a.
        lifter: L, of mfcc; 0 for none.
        floor: the smallest number of which a logarithm is taken; the default suits samples from -1 to 1.

    >>> features = SoundFeatures.of(8000, "mfcc")
    >>> features.window, features.hop, features.size
    (200, 80, 13)
    >>> features.transform(np.zeros(1000)).shape
    (11, 13)
    """

    rate: int
    kind: str
    window: int
    hop: int
    filters: int = 26
    coefficients: int = 12
    preemphasis: float = 0.97
    lifter: int = 22
    floor: float = 1e-8

    def __post_init__(self) -> None:
        whole = ("rate", "window", "hop", "filters", "coefficients")
        for name in (*whole, "lifter"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < (name != "lifter"):
                raise ValueError(f"{name}: expected a positive integer, got {value!r}")
        if self.kind not in KINDS:
            raise ValueError(f"features: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        if not 4 <= self.window <= LONGEST_WINDOW:
            raise ValueError(f"window: expected 4 to {LONGEST_WINDOW} samples, got {self.window}")
        if self.hop > self.window:
            raise ValueError(f"hop: expected at most the window, {self.window} samples, got {self.hop}")
        if self.filters > self.fft // 2:
            raise ValueError(f"filters: expected at most {self.fft // 2}, got {self.filters}")
        if self.kind == "mfcc" and self.coefficients >= self.filters:
            raise ValueError(
                f"coefficients: expected fewer than the {self.filters} filters, got {self.coefficients}"
            )
        if not 0 <= self.preemphasis <= 1:
            raise ValueError(f"preemphasis: expected 0 to 1, got {self.preemphasis!r}")
        if not 0 < self.floor < 1:
            raise ValueError(f"floor: expected above 0 and below 1, got {self.floor!r}")

    @staticmethod
    def of(
        rate: int, kind: str = "mfcc", *, window: float = 0.025, hop: float = 0.01, **others: Any
    ) -> "SoundFeatures":
        """Features of sounds with `rate` samples in a second; window and hop in seconds."""
        for name, value in (("window", window), ("hop", hop)):
            if not isinstance(value, int | float) or not 0 < value <= 1:
                raise ValueError(f"{name}: expected seconds, above 0 and at most 1, got {value!r}")
        return SoundFeatures(rate, kind, round(window * rate), max(1, round(hop * rate)), **others)

    @property
    def fft(self) -> int:
        """M."""
        return 1 << (self.window - 1).bit_length()

    @property
    def size(self) -> int:
        """D."""
        return self.filters if self.kind == "log-mel" else self.coefficients + 1

    def frame_count(self, samples: int) -> int:
        """How many whole windows a recording holds."""
        return max(0, 1 + (samples - self.window) // self.hop)

    def transform(self, samples: NDArray[Any]) -> Array:
        """The features of samples (n,), (frames, D)."""
        frames = self.frame_count(len(samples))
        result = np.empty((frames, self.size))
        for first in range(0, frames, BLOCK):
            starts = self.hop * np.arange(first, min(frames, first + BLOCK))[:, None]
            windows = samples[starts + np.arange(self.window)].astype(np.float64)
            result[first : first + BLOCK] = self.of_windows(windows)
        return result

    def of_windows(self, windows: Array) -> Array:
        """The features of windows (..., W), (..., D)."""
        before = np.concatenate([windows[..., :1], windows[..., :-1]], axis=-1)
        emphasised = windows - self.preemphasis * before
        spectrum = scipy.fft.rfft(emphasised * self.taper, self.fft, axis=-1)
        mel = np.log(np.maximum((spectrum.real**2 + spectrum.imag**2) @ self.mel_filters.T, self.floor))
        if self.kind == "log-mel":
            return np.asarray(mel)
        energy = np.log(np.maximum((windows**2).sum(axis=-1, keepdims=True), self.floor))
        return np.concatenate([mel @ self.cepstra.T, energy], axis=-1)

    def of_channels(self, samples: Array) -> Array:
        """The features of samples (C, n): those of each channel in turn, (C * D, frames)."""
        return np.concatenate([self.transform(channel).T for channel in samples])

    @cached_property
    def taper(self) -> Array:
        """The Hamming window, (W,)."""
        hamming: Array = np.hamming(self.window).astype(np.float64)
        return hamming

    @cached_property
    def mel_filters(self) -> Array:
        """(J, M / 2 + 1): triangles on the mel scale, 1127 ln(1 + f / 700), evenly spread up to half of the rate.

        Filter j rises from 0 at the centre of filter j - 1 to 1 at its own and falls to 0 at that of filter j + 1,
        linearly in mel.
        """
        mel = 1127 * np.log1p(np.arange(self.fft // 2 + 1) * (self.rate / self.fft) / 700)
        spacing = mel[-1] / (self.filters + 1)
        centres = spacing * np.arange(1, self.filters + 1)[:, None]
        triangles: Array = np.maximum(0, 1 - np.abs(mel - centres) / spacing)
        return triangles

    @cached_property
    def _positions(self) -> Array:
        """Where bins 1 ... M / 2 - 1 lie on the mel scale, in distances of two filters; filter j is at j.

        The bins at both ends, at 0 and J + 1, are in no filter.
        """
        bins = np.arange(1, self.fft // 2) * (self.rate / self.fft)
        positions: Array = (self.filters + 1) * np.log1p(bins / 700) / np.log1p(self.rate / 1400)
        return positions

    @property
    def mel_parts(self) -> Array:
        """For bins 1 ... M / 2 - 1 the share of the filter above; the filter below has the rest.

        The same triangles as `mel_filters`, for a program that adds each bin to its two filters.
        """
        parts: Array = self._positions % 1
        return parts

    @property
    def mel_starts(self) -> NDArray[np.int64]:
        """(J + 2,): the first bin above the centre of filter j = 0 ... J + 1, where 0 and J + 1 are the ends."""
        starts: NDArray[np.int64] = 1 + np.searchsorted(
            np.floor(self._positions), np.arange(self.filters + 2)
        )
        return starts

    @cached_property
    def cepstra(self) -> Array:
        """The cosines of mfcc times the lifter, (K, J)."""
        i = np.arange(1, self.coefficients + 1)[:, None]
        cosines = np.cos(np.pi * i * (np.arange(self.filters) + 0.5) / self.filters)
        lifter = 1 + self.lifter / 2 * np.sin(np.pi * i / self.lifter) if self.lifter else 1.0
        scaled: Array = np.sqrt(2 / self.filters) * lifter * cosines
        return scaled
