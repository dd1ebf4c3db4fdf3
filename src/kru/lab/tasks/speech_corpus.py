"""A small corpus of generated speech in TIMIT's layout, with which the TIMIT problem runs anywhere."""

from pathlib import Path
from typing import Literal

import numpy as np

from kru.lab.data import DataError
from kru.lab.tasks import espeak, formants
from kru.lab.tasks.audio import riff_bytes
from kru.lab.tasks.voices import Line, Voice
from kru.training import counter

Engine = Literal["auto", "espeak", "signals"]

_CORPUS = 0x73706565
_REGIONS = 8
_SHARED_SENTENCES = 2

_ADJECTIVES = ("young", "yellow", "heavy", "broken", "quiet", "golden", "zero", "rough", "pleasant", "thick")
_SUBJECTS = (
    "engines",
    "tables",
    "numbers",
    "pilots",
    "gardens",
    "oceans",
    "judges",
    "children",
    "windows",
    "men",
)
_VERBS = ("measure", "follow", "carry", "change", "finish", "share", "choose", "watch", "divide", "join")
_OBJECTS = (
    "boats",
    "apples",
    "houses",
    "letters",
    "visions",
    "bridges",
    "foxes",
    "voices",
    "clouds",
    "rings",
)


def generate(
    directory: str | Path, *, speakers: int = 8, sentences: int = 4, seed: int = 0, engine: Engine = "auto"
) -> str:
    """Write a corpus: the same files for the same arguments (and, with eSpeak NG, the same version of it).

    The speakers are women and men in turn, of dialect regions DR1 to DR8 in turn; every fourth belongs to the
    part TEST and the others to TRAIN. Each reads the sentences SA1 and SA2, the same for all, and `sentences`
    of her or his own, SX1, SX2, ... Phones and their places come from the engine itself.

    Args:
        directory: where to write it; must not exist, or be empty.
        engine: "espeak" for eSpeak NG, "signals" for sines and noise, "auto" for the first if it is
            installed.

    Returns:
        The engine that spoke: "espeak" or "signals".
    """
    root = Path(directory).expanduser()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(f"{root}: exists already; name a new or empty directory for the generated corpus")
    for name, value, least in (("speakers", speakers, 4), ("sentences", sentences, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if engine not in ("auto", "espeak", "signals"):
        raise ValueError(f"engine: expected auto, espeak or signals, got {engine!r}")
    if engine == "auto":
        engine = "espeak" if espeak.installed() else "signals"

    key = counter.derive_key(_CORPUS, seed)
    places: list[Path] = []
    lines: list[Line] = []
    for speaker in range(speakers):
        voice = _voice(key, speaker)
        part = "TEST" if speaker % 4 == 3 else "TRAIN"
        folder = root / part / f"DR{1 + speaker % _REGIONS}" / f"{'F' if voice.female else 'M'}GEN{speaker}"
        for number in range(_SHARED_SENTENCES + sentences):
            shared = number < _SHARED_SENTENCES
            name = f"SA{number + 1}" if shared else f"SX{number + 1 - _SHARED_SENTENCES}"
            line_key = counter.derive_key(key, 1 + speaker, number)
            places.append(folder / name)
            lines.append(
                Line(_sentence(counter.derive_key(key, 0, number) if shared else line_key), voice, line_key)
            )

    speeches = espeak.speak(lines) if engine == "espeak" else formants.speak(lines)
    for place, line, speech in zip(places, lines, speeches, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".WAV").write_bytes(riff_bytes(speech.samples))
        labels = "".join(f"{segment.begin} {segment.end} {segment.phone}\n" for segment in speech.segments)
        place.with_suffix(".PHN").write_bytes(labels.encode())
        text = f"0 {len(speech.samples)} {' '.join(line.words)}.\n"
        place.with_suffix(".TXT").write_bytes(text.encode())
    return engine


def _voice(key: int, speaker: int) -> Voice:
    draws = counter.uniform(counter.random_words(counter.derive_key(key, speaker), np.arange(3)))
    return Voice(speaker % 2 == 0, *(float(draw) for draw in draws))


def _sentence(key: int) -> tuple[str, ...]:
    lists = (_ADJECTIVES, _SUBJECTS, _VERBS, _ADJECTIVES, _OBJECTS)
    draws = counter.random_words(key, np.arange(len(lists))).tolist()
    return tuple(words[draw % len(words)] for words, draw in zip(lists, draws, strict=True))
