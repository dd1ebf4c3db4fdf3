"""Choosing the strength of the read-out's regularisation: blocked cross-validation or leave-one-out."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kru.reservoir.checks import check_strengths
from kru.reservoir.normal import Linear, NormalEquations

Rows = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Gives chunks of features (n, S) and targets (n, O), the same ones each time it is called."""

STRENGTHS = tuple(10.0**power for power in range(-9, 3))
"""The strengths that are tried where none are given."""
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
    ridge: float | Sequence[float] = STRENGTHS,
    *,
    validation: str = "blocked",
    folds: int = 5,
) -> Fitted:
    """Ridge regression over rows that come in chunks and are never all in memory.

    Args:
        rows: a function that gives the chunks; called once, and a second time by "leave-one-out".
        ridge: one strength, or several, of which the validation error chooses.
        validation: "blocked" leaves out one stretch of time after the other: each takes an eigendecomposition and S^2
            numbers. "leave-one-out" takes one eigendecomposition and a second pass over the rows; neighbouring steps
            of a series resemble each other, so that it tends to choose weaker regularisation.
        folds: stretches of "blocked", as far as there are chunks.
    """
    strengths = check_strengths(ridge)
    if validation not in VALIDATIONS:
        raise ValueError(f"validation: expected one of {', '.join(VALIDATIONS)}, got {validation!r}")
    if len(strengths) == 1:
        equations = _add_up(rows, features, outputs)
        return Fitted(equations.solve(strengths[0]), strengths[0], {})
    if min(strengths) == 0:
        raise ValueError("ridge: expected strengths above zero to choose from, got 0")
    choose = _blocked if validation == "blocked" else _leave_one_out
    total, errors = choose(rows, features, outputs, strengths, folds)
    best = min(strengths, key=lambda strength: errors[strength])
    return Fitted(total.solve(best), best, errors)


def _add_up(rows: Rows, features: int, outputs: int) -> NormalEquations:
    equations = NormalEquations(features, outputs)
    for f, y in rows():
        equations.add(f, y)
    return equations


def _blocked(
    rows: Rows, features: int, outputs: int, strengths: list[float], folds: int
) -> tuple[NormalEquations, dict[float, float]]:
    counts = [len(f) for f, _ in rows()]
    total_rows = sum(counts)
    if total_rows < 2 * folds:
        raise ValueError(
            f"folds: expected at least two steps in each of {folds} folds, got {total_rows} steps after the washout"
        )
    bounds = [round(total_rows * k / folds) for k in range(folds + 1)]
    blocks = [NormalEquations(features, outputs) for _ in range(folds)]
    first = 0
    for f, y in rows():
        for k in range(folds):
            low, high = (min(max(bound - first, 0), len(f)) for bound in bounds[k : k + 2])
            if low < high:
                blocks[k].add(f[low:high], y[low:high])
        first += len(f)
    total = NormalEquations(features, outputs)
    for block in blocks:
        total += block
    errors = dict.fromkeys(strengths, 0.0)
    for block in blocks:
        total -= block
        for strength, linear in zip(strengths, total.path(strengths), strict=True):
            errors[strength] += block.squared_error(linear) / (total_rows * outputs)
        total += block
    return total, errors


def _leave_one_out(
    rows: Rows, features: int, outputs: int, strengths: list[float], _: int
) -> tuple[NormalEquations, dict[float, float]]:
    """e_t / (1 - l_t) with the leverage l_t = 1/n + (f_t - mean)' (G + strength)^-1 (f_t - mean)."""
    total = _add_up(rows, features, outputs)
    gram, cross = total.centred()
    values, vectors = torch.linalg.eigh(gram)
    values, turned = values.clamp(min=0), vectors.T @ cross
    mean_f, mean_y = total.means
    errors = dict.fromkeys(strengths, 0.0)
    for f, y in rows():
        z = (f.double() - mean_f) @ vectors
        for strength in strengths:
            inverse = 1 / (values + strength)
            residual = y.double() - mean_y - z @ (inverse.unsqueeze(1) * turned)
            leverage = 1 / total.count + z.square() @ inverse
            left_out = residual / (1 - leverage).clamp(min=1e-12).unsqueeze(1)
            errors[strength] += float(left_out.square().sum()) / (total.count * outputs)
    return total, errors
