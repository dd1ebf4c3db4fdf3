"""How figures look: large enough for a slide, colours that colour-blind people can tell apart."""

import io
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

# Figures are written to files, also where there is no display.
matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kru.nn.kinds import KINDS
from kru.training.files import write_atomically

# Recipes of a kind with another budget or size: the kind, the label, the line style.
VARIANTS = {
    "kru-brief": ("kru", "KRU, two epochs", "--"),
    "kru-further": ("kru", "KRU, trained further", ":"),
    "kru-exact": ("kru", "KRU, exactly unitary", ":"),
    "fc-urnn-116": ("fc-urnn", "FC uRNN, N=116", ":"),
}


class Look(NamedTuple):
    """How the lines of a model look."""

    label: str
    colour: str
    dash: str = "-"


def _looks() -> dict[str, Look]:
    """The look of every kind, each followed by its variants."""
    looks = {}
    for kind in KINDS.values():
        looks[kind.name] = Look(kind.label, kind.colour, kind.dash)
        for name, (base, label, dash) in VARIANTS.items():
            if base == kind.name:
                looks[name] = Look(label, kind.colour, dash)
    return looks


LOOKS = _looks()
"""A model has the same colour in every figure; the line styles tell models apart without colours."""
LABELS = {name: look.label for name, look in LOOKS.items()}
COLOURS = {name: look.colour for name, look in LOOKS.items()}

_STYLE: Any = {
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 2.0,
    "savefig.dpi": 150,
    # The same figure gives the same file.
    "svg.hashsalt": "kru",
}


def new_figure(
    panels: int, in_a_row: int = 2, size: tuple[float, float] = (6.4, 4.4)
) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, so many in a row at most, each of this width and height."""
    columns = min(panels, in_a_row)
    rows = -(-panels // columns)
    with pyplot.rc_context(_STYLE):
        figsize = (size[0] * columns, size[1] * rows)
        figure, axes = pyplot.subplots(rows, columns, figsize=figsize, squeeze=False)
    for spare in list(axes.flat)[panels:]:
        spare.set_visible(False)
    return figure, list(axes.flat)[:panels]


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.png and `path`.svg, and close the figure."""
    drawn = {}
    with pyplot.rc_context(_STYLE):
        figure.tight_layout()
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, metadata=metadata)
            drawn[path.with_name(f"{path.name}.{kind}")] = stream.getvalue()
    pyplot.close(figure)
    for file, data in drawn.items():
        write_atomically(file, data)
    return list(drawn)
