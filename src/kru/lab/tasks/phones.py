"""The 61 phones of TIMIT, and their folding to 39 classes after Lee and Hon (1989)."""

SILENCE = "h#"

_NAMES = """
    b d g p t k dx q bcl dcl gcl pcl tcl kcl jh ch s sh z zh f th v dh m n ng em en eng nx l r w y hh hv el
    iy ih eh ey ae aa aw ay ah ao oy ow uh uw ux er ax ix axr ax-h pau epi h#
"""
PHONES = tuple(sorted(_NAMES.split()))

_FOLDED = {
    "ao": "aa",
    "ax": "ah",
    "ax-h": "ah",
    "axr": "er",
    "hv": "hh",
    "ix": "ih",
    "el": "l",
    "em": "m",
    "en": "n",
    "nx": "n",
    "eng": "ng",
    "zh": "sh",
    "ux": "uw",
} | dict.fromkeys(("bcl", "dcl", "gcl", "pcl", "tcl", "kcl", "pau", "epi", SILENCE), "sil")


def fold(phone: str) -> str | None:
    """One of 39 classes; None for the glottal stop q, which the folding drops."""
    return None if phone == "q" else _FOLDED.get(phone, phone)


FOLDED_PHONES = tuple(sorted({folded for phone in PHONES if (folded := fold(phone)) is not None}))
