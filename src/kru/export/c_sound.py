"""Spectral features of sound in C: samples are collected, and each full window becomes the input of a step."""

from typing import NamedTuple

import numpy as np

from kru.export.c_weights import Weights
from kru.export.network import Sound


class StateArray(NamedTuple):
    """An array of floats in the state."""

    name: str
    size: int
    comment: str


def sound_arrays(sound: Sound) -> list[StateArray]:
    """What a state holds for the features."""
    features, channels = sound.features, sound.channels
    each = f", {channels} channels in turn" if channels > 1 else ""
    arrays = [
        StateArray(
            "heard", channels * features.window, f"the samples of the window that is not full yet{each}"
        ),
        StateArray("pending", 1, "how many of them there are"),
        StateArray("spectrum", features.fft, "has no meaning between steps"),
    ]
    if features.kind == "mfcc":
        arrays.append(StateArray("mel", features.filters, "neither has this"))
    return [*arrays, StateArray("features", channels * features.size, "those of the last window")]


def sound_functions(sound: Sound, weights: Weights, state_type: str) -> list[str]:
    """Store the tables, and return the functions that use them; see `kru.sound.SoundFeatures` for the formulas."""
    features = sound.features
    count, half = features.fft, features.fft // 2
    angles = 2 * np.pi * np.arange(half) / count
    tables = {
        "taper": features.taper,
        "turn": np.stack([np.cos(angles), -np.sin(angles)], axis=1),
        "part": features.mel_parts,
    }
    if features.kind == "mfcc":
        tables["cepstra"] = features.cepstra
    for name, table in tables.items():
        weights.vector(f"sound_{name}", table.astype(np.float32))
    weights.vector("sound_start", features.mel_starts.astype(np.int16))
    transform = _TRANSFORM.format(count=count, half=half)
    target = "state->mel" if features.kind == "mfcc" else "y"
    after = ""
    if features.kind == "mfcc":
        after = _CEPSTRA.format(
            coefficients=features.coefficients, filters=features.filters, window=features.window
        )
    body = _FEATURES.format(
        state=state_type,
        window=features.window,
        count=count,
        filters=features.filters,
        emphasis=np.float32(features.preemphasis),
        target=target,
        after=after,
    )
    floor = (
        f"static float sound_log(float z)\n{{\n    const float least = {np.float32(features.floor)}f;\n"
        "    return logf(z > least ? z : least);\n}"
    )
    return [transform, floor, body]


def sound_code(sound: Sound) -> str:
    """The statements of a step before the network: they return 0 until a window is full."""
    window, hop, size = sound.features.window, sound.features.hop, sound.features.size
    kept = window - hop
    move = ""
    if kept:
        move = f"""
        for (long i = 0; i < {kept}; i++) {{
            heard[i] = heard[i + {hop}];
        }}"""
    return f"""\
    const long place = (long)state->pending[0];
    for (long c = 0; c < {sound.channels}; c++) {{
        state->heard[c * {window} + place] = x[c];
    }}
    state->pending[0] += 1.0f;
    if (place + 1 < {window}) {{
        return 0;
    }}
    for (long c = 0; c < {sound.channels}; c++) {{
        float *heard = state->heard + c * {window};
        sound_features(state, heard, state->features + c * {size});{move}
    }}
    state->pending[0] = {kept}.0f;"""


_TRANSFORM = """\
/* |X[k]|^2 for k = 1 ... {half} - 1 at z[2 k], X being the discrete Fourier transform of the {count} real numbers z. */
static void sound_spectrum(float *z)
{{
    /* {half} complex numbers z[2 n] + i z[2 n + 1] are transformed in place: in bit-reversed order, then in steps. */
    for (long i = 1, j = 0; i < {half}; i++) {{
        long bit = {half} / 2;
        while (j & bit) {{
            j ^= bit;
            bit /= 2;
        }}
        j |= bit;
        for (long part = 0; part < 2 && i < j; part++) {{
            const float kept = z[2 * i + part];
            z[2 * i + part] = z[2 * j + part];
            z[2 * j + part] = kept;
        }}
    }}
    for (long size = 1; size < {half}; size *= 2) {{
        for (long k = 0; k < size; k++) {{
            const float *turn = sound_turn + k * ({count} / size);
            for (long i = k; i < {half}; i += 2 * size) {{
                float *a = z + 2 * i, *b = a + 2 * size;
                const float re = turn[0] * b[0] - turn[1] * b[1], im = turn[0] * b[1] + turn[1] * b[0];
                b[0] = a[0] - re;
                b[1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }}
        }}
    }}
    /* X[k] and X[{half} - k] are e + o and e - o (conjugated): the transforms of z[2 n], and of z[2 n + 1] turned. */
    for (long k = 1; k <= {half} / 2; k++) {{
        float *a = z + 2 * k, *b = z + 2 * ({half} - k);
        const float *turn = sound_turn + 2 * k;
        const float even_re = 0.5f * (a[0] + b[0]), even_im = 0.5f * (a[1] - b[1]);
        const float re = 0.5f * (a[1] + b[1]), im = 0.5f * (b[0] - a[0]);
        const float odd_re = turn[0] * re - turn[1] * im, odd_im = turn[0] * im + turn[1] * re;
        a[0] = (even_re + odd_re) * (even_re + odd_re) + (even_im + odd_im) * (even_im + odd_im);
        if (a != b) {{
            b[0] = (even_re - odd_re) * (even_re - odd_re) + (even_im - odd_im) * (even_im - odd_im);
        }}
    }}
}}"""

_FEATURES = """\
/* The features of a window of {window} samples. */
static void sound_features({state} *state, const float *heard, float *y)
{{
    float *z = state->spectrum;
    for (long i = 0; i < {count}; i++) {{
        z[i] = i < {window} ? (heard[i] - {emphasis}f * heard[i > 0 ? i - 1 : 0]) * sound_taper[i] : 0.0f;
    }}
    sound_spectrum(z);
    /* The bins from start[j] on are between the centres of filters j and j + 1: one falls, the other rises. */
    float rising = 0.0f;
    for (long j = 0; j <= {filters}; j++) {{
        float sum = rising;
        rising = 0.0f;
        for (long k = sound_start[j]; k < sound_start[j + 1]; k++) {{
            rising += sound_part[k - 1] * z[2 * k];
            sum += (1.0f - sound_part[k - 1]) * z[2 * k];
        }}
        if (j > 0) {{
            {target}[j - 1] = sound_log(sum);
        }}
    }}{after}
}}"""

_CEPSTRA = """
    for (long i = 0; i < {coefficients}; i++) {{
        y[i] = 0.0f;
        for (long j = 0; j < {filters}; j++) {{
            y[i] += sound_cepstra[i * {filters} + j] * state->mel[j];
        }}
    }}
    float energy = 0.0f;
    for (long i = 0; i < {window}; i++) {{
        energy += heard[i] * heard[i];
    }}
    y[{coefficients}] = sound_log(energy);"""
