"""Which factors and how many terms each layer gets, within a number of parameters for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from torch import Tensor

from kru.linalg.factors import Shapes
from kru.linalg.nearest import two_factor_errors


@dataclass(frozen=True)
class Candidate:
    """A way to compress the matrices of one layer, all with the same factors.

    Attributes:
        parameters: of all its matrices together; a complex entry has two.
        loss: the sum of their squared relative errors.
    """

    shapes: Shapes
    rank: int
    parameters: int
    loss: float


def candidates(matrices: Sequence[Tensor], rank: int | None) -> list[Candidate]:
    """Sums of products of two factors that have fewer entries than the matrices, of any number of terms or of one.

    Two factors, because their optimum for every number of terms comes from one decomposition. One of the splits is
    (N, 1) ⊗ (1, K), whose sums are the matrices of low rank.
    """
    rows, columns = matrices[0].shape
    numbers = 2 if matrices[0].is_complex() else 1
    found = []
    for shapes in two_factor_splits(rows, columns):
        each = sum(p * q for p, q in shapes)
        losses = sum(two_factor_errors(matrix, shapes).square() for matrix in matrices)
        assert isinstance(losses, Tensor)
        for terms, loss in enumerate(losses.tolist(), 1):
            if terms * each < rows * columns and rank in (None, terms):
                found.append(Candidate(shapes, terms, numbers * len(matrices) * terms * each, loss))
    return found


def two_factor_splits(rows: int, columns: int) -> list[Shapes]:
    """Pairs of shapes of about the matrix's proportions, and a column times a row.

    >>> two_factor_splits(6, 6)
    [((2, 2), (3, 3)), ((3, 3), (2, 2)), ((6, 1), (1, 6))]
    >>> two_factor_splits(4, 9)
    [((2, 3), (2, 3)), ((4, 1), (1, 9))]
    """
    splits = []
    for p in _divisors(rows)[1:-1]:
        # The number of columns whose logarithm is to that of all columns as the rows' is.
        wanted = log(columns) * log(p) / log(rows)
        q = min(_divisors(columns), key=lambda size: abs(log(size) - wanted))
        splits.append(((p, q), (rows // p, columns // q)))
    return [*splits, ((rows, 1), (1, columns))]


def choose(layers: Sequence[Sequence[Candidate]], max_parameters: int) -> list[Candidate]:
    """One candidate for each layer: from the smallest ones on, always the change that lowers the loss most for each
    parameter it costs, while the parameters suffice."""
    chosen = [min(own, key=lambda candidate: (candidate.parameters, candidate.loss)) for own in layers]
    least = sum(candidate.parameters for candidate in chosen)
    if least > max_parameters:
        raise ValueError(
            f"max_parameters: expected at least {least}, as many as the smallest factors have, got {max_parameters}"
        )
    while True:
        left = max_parameters - sum(candidate.parameters for candidate in chosen)
        steps = [
            ((now.loss - then.loss) / max(then.parameters - now.parameters, 1), k, then)
            for k, (now, own) in enumerate(zip(chosen, layers, strict=True))
            for then in own
            if then.loss < now.loss and then.parameters - now.parameters <= left
        ]
        if not steps:
            return chosen
        _, k, best = max(steps, key=lambda step: step[0])
        chosen[k] = best


def _divisors(size: int) -> list[int]:
    return [n for n in range(1, size + 1) if size % n == 0]
