"""Speaks sentences with the eSpeak NG library; run as a process of its own by `kru.lab.tasks.espeak`.

The library's sound depends on everything it spoke before, and it cannot be reset: only a fresh process gives
the same samples for the same requests. This file therefore imports nothing but the standard library and is
fast to start.

Standard input is a JSON list of requests ``{"text", "voice", "pitch", "words_per_minute"}``. Standard output
is a JSON
object: ``rate``, and for each request its ``samples`` (16-bit little-endian, in base64) and ``phonemes``, a
list of [sample, mnemonic]. Exit code 3 says that the library or a voice is missing.
"""

import base64
import ctypes
import json
import sys
from typing import Any

LIBRARIES = {"darwin": "libespeak-ng.dylib", "win32": "libespeak-ng.dll"}

_SYNCHRONOUS = 2
_PHONEME_EVENTS, _DO_NOT_EXIT = 1, 1 << 15
_RATE, _PITCH = 1, 3
_CHARACTER_POSITIONS, _UTF8 = 1, 1
_LIST_ENDS, _PHONEME = 0, 7


class _Identity(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Identity),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


def load_library() -> ctypes.CDLL:
    """The library as the system finds it; OSError if it is not installed."""
    return ctypes.CDLL(LIBRARIES.get(sys.platform, "libespeak-ng.so.1"))


def speak(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Speak all requests, in order."""
    library = load_library()
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, None, _PHONEME_EVENTS | _DO_NOT_EXIT)
    if rate <= 0:
        raise OSError("eSpeak NG does not find its data files")
    sound = bytearray()
    phonemes: list[tuple[int, str]] = []

    @_Callback  # type: ignore[untyped-decorator]
    def receive(samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            sound.extend(ctypes.string_at(samples, 2 * count))
        index = 0
        while events[index].type != _LIST_ENDS:
            if events[index].type == _PHONEME:
                phonemes.append((events[index].sample, events[index].id.string.decode("utf-8", "replace")))
            index += 1
        return 0

    library.espeak_SetSynthCallback(receive)
    spoken = []
    for request in requests:
        sound.clear()
        phonemes.clear()
        if library.espeak_SetVoiceByName(request["voice"].encode()) != 0:
            raise OSError(f"eSpeak NG has no voice {request['voice']}")
        library.espeak_SetParameter(_RATE, request["words_per_minute"], 0)
        library.espeak_SetParameter(_PITCH, request["pitch"], 0)
        text = request["text"].encode()
        library.espeak_Synth(text, len(text) + 1, 0, _CHARACTER_POSITIONS, 0, _UTF8, None, None)
        library.espeak_Synchronize()
        spoken.append({"samples": base64.b64encode(sound).decode(), "phonemes": list(phonemes)})
    return {"rate": rate, "spoken": spoken}


if __name__ == "__main__":
    try:
        json.dump(speak(json.load(sys.stdin)), sys.stdout)
    except OSError as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)
