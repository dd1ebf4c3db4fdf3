"""Sound: WAV files, spectral features, and variants of recordings for training."""

from kru.sound.augment import vary
from kru.sound.features import KINDS, SoundFeatures
from kru.sound.wav import read_wav

__all__ = ["KINDS", "SoundFeatures", "read_wav", "vary"]
