"""
A spoken digit
==============

`kru.estimators.KRUClassifier` reads sounds of unequal lengths. With ``features="mfcc"`` the mel-frequency cepstra are
part of the model, and of the program that it is exported to.

The words are made by the small synthesiser of the laboratory, which spells them: a few sines for a vowel, noise for a
hiss, and for each speaker another vocal tract, pitch and tempo. Real recordings are harder.
"""

import numpy as np
from matplotlib import pyplot

from kru.estimators import KRUClassifier
from kru.lab.tasks.audio import SAMPLE_RATE
from kru.lab.tasks.formants import speak
from kru.lab.tasks.voices import Line, Voice

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
rng = np.random.default_rng(0)


def recordings(speakers):
    """Each digit said once by each of some new speakers: samples (1, n), and the digits."""
    voices = [Voice(bool(rng.integers(2)), *rng.random(3)) for _ in range(speakers)]
    lines = [Line((word,), voice, int(rng.integers(2**31))) for voice in voices for word in DIGITS]
    return [speech.samples[None] / 32768 for speech in speak(lines)], DIGITS * speakers


train, test = recordings(12), recordings(4)
model = KRUClassifier(units=64, features="mfcc", sample_rate=SAMPLE_RATE, steps=150, random_state=0)
model.fit(*train)
print(
    f"{model.n_parameters_:,} parameters; {model.score(*test):.0%} of the digits of four other speakers right"
)

# %%
# What the network is given: 20 to 40 frames of cepstra instead of thousands of samples. And what it believes after each
# part of the word, read as it comes.

sound, word = test[0][7], test[1][7]
parts = np.linspace(0.15, 1, 25)
belief = np.stack([model.predict_proba([sound[:, : int(part * sound.shape[1])]])[0] for part in parts])
figure, (top, middle, bottom) = pyplot.subplots(3, 1, figsize=(8, 6), height_ratios=[1, 1.3, 1.6])
top.plot(np.arange(sound.shape[1]) / SAMPLE_RATE, sound[0], linewidth=0.4)
top.set(xlim=(0, sound.shape[1] / SAMPLE_RATE), yticks=[], title=f"“{word}”", xlabel="seconds")
middle.imshow(model.sound_.transform(sound[0]).T, aspect="auto", origin="lower", interpolation="nearest")
middle.set(ylabel="cepstra", xlabel="frames")
bottom.imshow(belief.T, aspect="auto", interpolation="nearest", vmin=0, vmax=1, extent=(15, 100, 9.5, -0.5))
bottom.set_yticks(range(10), model.classes_)
bottom.set_xlabel("percent of the word heard (yellow: probability 1)")
figure.tight_layout()
