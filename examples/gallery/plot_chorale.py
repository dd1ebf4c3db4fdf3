"""
A chorale continued
===================

A network of 17,846 parameters, trained on Bach's chorales, continues a theme: here a cadence in four voices that is
written below. Its weights come with kru; the music that it was trained on does not.
"""

import base64
import io
import wave
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot

import kru
from kru.lab.result import read_weights

(weights,) = Path(kru.__file__).parents[2].glob("results/**/jsb-kru-seed1.safetensors")
recipe, model = read_weights(weights)
model.eval()
print(recipe.model)

# %%
# A step is a quarter note, and an input 88 keys that are down or not. The theme is a list of chords: bass, tenor, alto,
# soprano, as MIDI notes (60 is middle C).

LOWEST, KEYS = 21, 88
THEME = [
    (48, 60, 64, 67),
    (53, 60, 65, 69),
    (55, 59, 62, 67),
    (48, 60, 64, 67),
    (57, 60, 64, 69),
    (50, 57, 65, 69),
    (55, 59, 62, 71),
    (48, 55, 64, 72),
]
theme = torch.zeros(len(THEME), KEYS)
for step, chord in enumerate(THEME):
    theme[step, [note - LOWEST for note in chord]] = 1.0

# %%
# The outputs are the probabilities that each key is down in the next step, given all steps before. Each key is drawn
# with its probability; of more than four, the likeliest four stay.


def draw(logits, generator):
    probability = logits.sigmoid()
    drawn = torch.rand(KEYS, generator=generator) < probability
    four = torch.where(drawn, probability, 0.0).topk(4).indices
    keys = torch.zeros(KEYS)
    keys[four] = drawn[four].float()
    return keys


generator = torch.Generator().manual_seed(0)
roll = list(theme)
with torch.no_grad():
    outputs, state = model(theme[:, None])
    for _ in range(40):
        roll.append(draw(outputs[-1, 0], generator))
        outputs, state = model(roll[-1][None, None], state)
roll = torch.stack(roll).numpy()

figure, axes = pyplot.subplots(figsize=(10, 3.6))
axes.imshow(roll.T, aspect="auto", origin="lower", cmap="Greys", interpolation="nearest")
axes.axvspan(-0.5, len(THEME) - 0.5, color="tab:blue", alpha=0.2)
played = np.flatnonzero(roll.any(0))
axes.set(
    ylim=(played[0] - 2, played[-1] + 2), xlabel="quarter notes (blue: the theme)", ylabel="key of the piano"
)
figure.tight_layout()

# %%
# The same as sound: a tone with a few overtones for each note, held while the key stays down.

RATE, BEAT = 11025, 0.4


def tone(note, seconds):
    time = np.arange(int(RATE * seconds)) / RATE
    pitch = 440 * 2 ** ((note - 69) / 12)
    wave_ = sum(np.sin(2 * np.pi * k * pitch * time) / k**2 for k in (1, 2, 3, 4))
    return wave_ * np.minimum(1, time / 0.02) * np.exp(-1.5 * time) * np.minimum(1, (seconds - time) / 0.05)


sound = np.zeros(int(RATE * BEAT * (len(roll) + 1)))
for key in played:
    down = np.concatenate([[0], roll[:, key], [0]])
    changes = np.flatnonzero(np.diff(down))
    for begin, end in changes.reshape(-1, 2):
        note = tone(key + LOWEST, (end - begin) * BEAT)
        start = int(RATE * BEAT * begin)
        sound[start : start + len(note)] += note
sound = (sound / np.abs(sound).max() * 30000).astype("<i2")


class Sound:
    """Shown on a page as a player. The sound is part of the page."""

    def _repr_html_(self):
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes(sound.tobytes())
        data = base64.b64encode(file.getvalue()).decode()
        return f'<audio controls src="data:audio/wav;base64,{data}"></audio>'


Sound()
