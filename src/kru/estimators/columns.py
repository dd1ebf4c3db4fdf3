"""Where the files of a data set have what, kept with a model so that predictions find it again."""

from dataclasses import asdict, dataclass
from typing import Any

from kru.training.plain_json import Shape, mismatches


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and what else tells how files are read; see `kru.estimators.files.read`.

    Attributes:
        target: what is predicted.
        case, time: of a long table; None: found by name.
        channels: what the network reads, in this order; none: everything else.
        exogenous: of a forecaster's table, what is known of the future too.
        label_pattern: of WAV files.
    """

    target: str | None = None
    case: str | None = None
    time: str | None = None
    channels: tuple[str, ...] = ()
    exogenous: tuple[str, ...] = ()
    label_pattern: str | None = None


def read_columns(stored: Any) -> Columns:
    """The columns in a file of an estimator; none in one that has not got them."""
    if stored is None:
        return Columns()
    optional = str | None
    shape: dict[str, Shape] = {
        "target": optional,
        "case": optional,
        "time": optional,
        "channels": [str],
        "exogenous": [str],
        "label_pattern": optional,
    }
    if not isinstance(stored, dict) or set(stored) != set(asdict(Columns())) or mismatches(stored, shape):
        raise ValueError("columns: missing or of another type")
    lists = {name: tuple(stored[name]) for name in ("channels", "exogenous")}
    return Columns(**{**stored, **lists})
