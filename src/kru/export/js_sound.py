"""Spectral features of sound in JavaScript; see `kru.sound.SoundFeatures` for the formulas."""

import json
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from kru.export.network import Sound


def sound_settings(sound: Sound | None, vector: Callable[[NDArray[Any]], str]) -> str:
    """The entry of a model, whose tables `vector` stores."""
    if sound is None:
        return "null"
    features = sound.features
    entries: dict[str, Any] = {
        "mfcc": json.dumps(features.kind == "mfcc"),
        "window": features.window,
        "hop": features.hop,
        "filters": features.filters,
        "coefficients": features.coefficients,
        "preemphasis": features.preemphasis,
        "floor": features.floor,
        "taper": vector(features.taper),
        "part": vector(features.mel_parts),
        "start": json.dumps(features.mel_starts.tolist()),
        "cepstra": vector(features.cepstra) if features.kind == "mfcc" else "null",
        "work": f"new Float64Array({features.fft})",
    }
    return "{ " + ", ".join(f"{key}: {value}" for key, value in entries.items()) + " }"


SOUND = """
// |X[k]|^2 at z[2 k] for 0 < k < z.length / 2, X being the discrete Fourier transform of the real numbers z.
function spectrum(z) {
  const count = z.length, half = count / 2;
  // Numbers z[2 n] + i z[2 n + 1] are transformed in place: in bit-reversed order, then in steps.
  for (let i = 1, j = 0; i < half; i++) {
    let bit = half / 2;
    for (; j & bit; bit /= 2) j ^= bit;
    j |= bit;
    for (const part of i < j ? [0, 1] : []) {
      [z[2 * i + part], z[2 * j + part]] = [z[2 * j + part], z[2 * i + part]];
    }
  }
  for (let size = 1; size < half; size *= 2) {
    for (let k = 0; k < size; k++) {
      const cos = Math.cos((Math.PI * k) / size), sin = -Math.sin((Math.PI * k) / size);
      for (let i = k; i < half; i += 2 * size) {
        const a = 2 * i, b = a + 2 * size;
        const re = cos * z[b] - sin * z[b + 1], im = cos * z[b + 1] + sin * z[b];
        z[b] = z[a] - re;
        z[b + 1] = z[a + 1] - im;
        z[a] += re;
        z[a + 1] += im;
      }
    }
  }
  // X[k] and X[half - k] are e + o and e - o (conjugated): the transforms of z[2 n], and of z[2 n + 1] turned.
  for (let k = 1; k <= half / 2; k++) {
    const a = 2 * k, b = 2 * (half - k), cos = Math.cos((Math.PI * k) / half), sin = -Math.sin((Math.PI * k) / half);
    const eRe = 0.5 * (z[a] + z[b]), eIm = 0.5 * (z[a + 1] - z[b + 1]);
    const re = 0.5 * (z[a + 1] + z[b + 1]), im = 0.5 * (z[b] - z[a]);
    const oRe = cos * re - sin * im, oIm = cos * im + sin * re;
    z[b] = (eRe - oRe) ** 2 + (eIm - oIm) ** 2;
    z[a] = (eRe + oRe) ** 2 + (eIm + oIm) ** 2;
  }
}

// The features of one window of samples.
function features(heard) {
  const { mfcc, window, filters, coefficients, preemphasis, floor, taper, part, start, cepstra, work } = model.sound;
  const log = (z) => Math.log(Math.max(z, floor));
  work.fill(0);
  for (let i = 0; i < window; i++) work[i] = (heard[i] - preemphasis * heard[Math.max(0, i - 1)]) * taper[i];
  spectrum(work);
  // The bins from start[j] on are between the centres of filters j and j + 1: one falls, the other rises.
  const mel = [];
  for (let j = 0, rising = 0; j <= filters; j++) {
    let sum = rising;
    rising = 0;
    for (let k = start[j]; k < start[j + 1]; k++) {
      rising += part[k - 1] * work[2 * k];
      sum += (1 - part[k - 1]) * work[2 * k];
    }
    if (j > 0) mel.push(log(sum));
  }
  if (!mfcc) return mel;
  const y = Array.from({ length: coefficients }, (_, i) =>
    mel.reduce((sum, value, j) => sum + cepstra[i * filters + j] * value, 0));
  return [...y, log(heard.reduce((sum, value) => sum + value * value, 0))];
}
"""
