"""Choosing the strength of the read-out's regularisation: blocked cross-validation or leave-one-out."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from kru.reservoir.checks import check_strengths
from kru.reservoir.equations import Equations, Linear
from kru.reservoir.normal import NormalEquations
from kru.reservoir.triangular import TriangularEquations

Rows = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Gives chunks of features (n, S) and targets (n, O), the same ones each time it is called."""

STRENGTHS = tuple(10.0**power for power in range(-9, 3))
"""The strengths that are tried where none are given."""
FINE_STRENGTHS = (*(10.0**power for power in range(-15, -9)), *STRENGTHS)
"""The same for the method "qr", which can tell apart weaker ones."""
METHODS: dict[str, type[Equations]] = {"normal": NormalEquations, "qr": TriangularEquations}
VALIDATIONS = ("blocked", "leave-one-out")


class Fitted(NamedTuple):
    """A read-out, the strength that was chosen and the mean squared validation error of each strength."""

    linear: Linear
    strength: float
    errors: dict[float, float]


def fit_ridge(
    rows: Rows,
    features: int,
    outputs: int,
    ridge: float | Sequence[float] | None = None,
    *,
    validation: str = "blocked",
    folds: int = 5,
    method: str = "normal",
) -> Fitted:
    """Ridge regression over rows that come in chunks and are never all in memory.

    Args:
        rows: a function that gives the chunks; called once, and a second time by "leave-one-out".
        ridge: one strength, or several, of which the validation error chooses; None for 1e-9 ... 1e2, with "qr" for
            1e-15 ... 1e2.
        validation: "blocked" leaves out one stretch of time after the other: each takes an eigendecomposition and S^2
            numbers. "leave-one-out" takes one eigendecomposition and a second pass over the rows; neighbouring steps
            of a series resemble each other, so that it tends to choose weaker regularisation.
        folds: stretches of "blocked".
        method: "normal" (`NormalEquations`) or "qr" (`TriangularEquations`: slower, and exact to more digits).
    """
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    if ridge is None:
        ridge = FINE_STRENGTHS if method == "qr" else STRENGTHS
    strengths = check_strengths(ridge)
    if validation not in VALIDATIONS:
        raise ValueError(f"validation: expected one of {', '.join(VALIDATIONS)}, got {validation!r}")

    def empty() -> Equations:
        return METHODS[method](features, outputs)

    if len(strengths) == 1:
        return Fitted(_add_up(rows, empty()).solve(strengths[0]), strengths[0], {})
    if min(strengths) == 0:
        raise ValueError("ridge: expected strengths above zero to choose from, got 0")
    if validation == "blocked":
        total, errors = _blocked(rows, empty, strengths, folds)
    else:
        total, errors = _leave_one_out(rows, _add_up(rows, empty()), strengths)
    best = min(strengths, key=lambda strength: errors[strength])
    return Fitted(total.solve(best), best, errors)


def _add_up(rows: Rows, equations: Equations) -> Equations:
    for f, y in rows():
        equations.add(f, y)
    return equations


def _blocked(
    rows: Rows, empty: Callable[[], Equations], strengths: list[float], folds: int
) -> tuple[Equations, dict[float, float]]:
    total_rows = sum(len(f) for f, _ in rows())
    if total_rows < 2 * folds:
        raise ValueError(
            f"folds: expected at least two steps in each of {folds} folds, got {total_rows} steps after the washout"
        )
    bounds = [round(total_rows * k / folds) for k in range(folds + 1)]
    blocks = [empty() for _ in range(folds)]
    first = 0
    for f, y in rows():
        for k, block in enumerate(blocks):
            low, high = (min(max(bound - first, 0), len(f)) for bound in bounds[k : k + 2])
            if low < high:
                block.add(f[low:high], y[low:high])
        first += len(f)
    errors = dict.fromkeys(strengths, 0.0)
    for held_out in blocks:
        others = _sum([block for block in blocks if block is not held_out], empty())
        for strength, linear in zip(strengths, others.path(strengths), strict=True):
            errors[strength] += held_out.squared_error(linear) / (total_rows * held_out.outputs)
    return _sum(blocks, empty()), errors


def _sum(blocks: Sequence[Equations], total: Equations) -> Equations:
    for block in blocks:
        total += block
    return total


def _leave_one_out(
    rows: Rows, total: Equations, strengths: list[float]
) -> tuple[Equations, dict[float, float]]:
    """e_t / (1 - l_t) with the leverage l_t = 1/n + (f_t - mean)' (G + strength)^-1 (f_t - mean)."""
    total.expect_rows()
    values, vectors, turned = total.spectrum()
    mean_f, mean_y = total.means
    errors = dict.fromkeys(strengths, 0.0)
    for f, y in rows():
        z = (f.double() - mean_f) @ vectors
        for strength in strengths:
            inverse = 1 / (values + strength)
            residual = y.double() - mean_y - z @ (inverse.unsqueeze(1) * turned)
            leverage = 1 / total.count + z.square() @ inverse
            left_out = residual / (1 - leverage).clamp(min=1e-12).unsqueeze(1)
            errors[strength] += float(left_out.square().sum()) / (total.count * total.outputs)
    return total, errors
