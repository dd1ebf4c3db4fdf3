"""How figures look: large enough for a slide, colours that colour-blind people can tell apart."""

import io
from pathlib import Path
from typing import Any

import matplotlib

# Figures are written to files, also where there is no display.
matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kru.training.files import write_atomically

# The palette of Okabe and Ito; a model has the same colour in every figure.
COLOURS = {
    "kru": "#D55E00",
    "kru-brief": "#D55E00",
    "kru-further": "#D55E00",
    "kru-lstm": "#E69F00",
    "kru-gru": "#CC79A7",
    "rnn": "#999999",
    "lstm": "#0072B2",
    "gru": "#56B4E9",
    "rc-urnn": "#009E73",
    "fc-urnn": "#000000",
    "fc-urnn-116": "#000000",
    "ornn": "#F0E442",
    "eurnn": "#009E73",
    "exprnn": "#882255",
    "antisymmetric": "#44AA99",
    "antisymmetric-gated": "#44AA99",
}
LABELS = {
    "kru": "KRU",
    "kru-brief": "KRU, two epochs",
    "kru-further": "KRU, trained further",
    "kru-lstm": "KRU-LSTM",
    "kru-gru": "KRU-GRU",
    "rnn": "RNN",
    "lstm": "LSTM",
    "gru": "GRU",
    "rc-urnn": "RC uRNN",
    "fc-urnn": "FC uRNN",
    "fc-urnn-116": "FC uRNN, N=116",
    "ornn": "oRNN",
    "eurnn": "EURNN",
    "exprnn": "expRNN",
    "antisymmetric": "AntisymmetricRNN",
    "antisymmetric-gated": "AntisymmetricRNN, gated",
}
DASHES = {
    "kru-brief": "--",
    "kru-further": ":",
    "rnn": "-.",
    "gru": "-.",
    "lstm": "--",
    "fc-urnn-116": ":",
    "eurnn": ":",
    "antisymmetric-gated": "--",
}
"""Line styles besides the plain one, so that a figure can also be read without colours."""

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
