"""What a misspelt name may have been meant to be."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question in brackets with the known name nearest to `name`, to follow it; empty if none is near.

    >>> did_you_mean("trian", ["train", "plot"]), did_you_mean("dance", ["train", "plot"])
    (' (did you mean train?)', '')
    """
    near = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def expect_known(what: str, name: str, known: Collection[str]) -> None:
    """Raise a ValueError that names `what`, the known names and the nearest one, if `name` is none of them."""
    if name not in known:
        near = did_you_mean(name, known)
        raise ValueError(f"{what}: expected one of {', '.join(known)}, got {name!r}{near}")
