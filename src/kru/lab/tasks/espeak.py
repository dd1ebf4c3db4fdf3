"""Speech of the generated corpus by eSpeak NG, where that is installed."""

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from kru.lab.data import DataError
from kru.lab.tasks import espeak_process
from kru.lab.tasks.audio import SAMPLE_RATE
from kru.lab.tasks.phones import SILENCE
from kru.lab.tasks.speech_files import Segment
from kru.lab.tasks.voices import Line, Speech

# Mnemonics of eSpeak's English phonemes; one with further marks counts as the longest entry it begins with.
_PHONES = {
    **{name: name for name in ("p", "b", "t", "d", "k", "g", "f", "v", "s", "z", "m", "n", "l", "r", "w")},
    **{"t#": "dx", "tS": "ch", "dZ": "jh", "T": "th", "D": "dh", "S": "sh", "Z": "zh", "h": "hh", "N": "ng"},
    **{"j": "y", "?": "q", "@L": "el", "x": "k", "_": "pau", "a": "ae", "a#": "ax", "A": "aa", "0": "aa"},
    **{"O": "ao", "o": "ao", "V": "ah", "@": "ax", "3": "axr", "3:": "er", "E": "eh", "e": "eh", "I": "ih"},
    **{"I2": "ix", "i": "iy", "i@": "ih", "U": "uh", "u": "uw", "eI": "ey", "aI": "ay", "OI": "oy"},
    **{"oU": "ow", "aU": "aw"},
}

TIMEOUT_SECONDS = 300


def installed() -> bool:
    """Whether the eSpeak NG library can be loaded."""
    try:
        espeak_process.load_library()
    except OSError:
        return False
    return True


def speak(lines: Sequence[Line]) -> list[Speech]:
    """Speak the lines with American voices, in a fresh process, so that equal lines sound equal."""
    requests = [
        {
            "text": " ".join(line.words),
            "voice": f"en-us+{'f' if line.voice.female else 'm'}{1 + int(3 * line.voice.timbre)}",
            "pitch": int(30 + 40 * line.voice.pitch),
            "words_per_minute": int(150 + 50 * line.voice.tempo),
        }
        for line in lines
    ]
    process = subprocess.run(
        [sys.executable, str(Path(espeak_process.__file__))],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if process.returncode != 0:
        reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise DataError(
            f"eSpeak NG could not speak: {reason}; install the package espeak-ng or use engine 'signals'"
        )
    reply = json.loads(process.stdout)
    return [
        _resampled(
            np.frombuffer(base64.b64decode(spoken["samples"]), "<i2"), spoken["phonemes"], reply["rate"]
        )
        for spoken in reply["spoken"]
    ]


def _resampled(sound: NDArray[np.int16], phonemes: list[tuple[int, str]], rate: int) -> Speech:
    """At 16 kHz, each phoneme reaching up to the next, with silence (h#) at both ends."""
    common = np.gcd(SAMPLE_RATE, rate)
    floats = scipy.signal.resample_poly(sound.astype(np.float64), SAMPLE_RATE // common, rate // common)
    samples = floats.round().clip(-32768, 32767).astype(np.int16)
    begins, names = [0], [SILENCE]
    for position, mnemonic in phonemes:
        begin, phone = position * SAMPLE_RATE // rate, _phone(mnemonic)
        if phone is not None and begin > begins[-1] and phone != names[-1]:
            begins.append(begin)
            names.append(phone)
    if names[-1] == "pau":
        names[-1] = SILENCE
    ends = [*begins[1:], len(samples)]
    return Speech(samples, [Segment(*segment) for segment in zip(begins, ends, names, strict=True)])


def _phone(mnemonic: str) -> str | None:
    """TIMIT's nearest phone; None for a mark such as ";", which only colours the phone before it."""
    matches = (
        _PHONES[mnemonic[:length]] for length in range(len(mnemonic), 0, -1) if mnemonic[:length] in _PHONES
    )
    return next(matches, None)
