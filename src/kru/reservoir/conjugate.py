"""Ridge regression by conjugate gradients: no S x S matrix, one pass over the rows for each iteration."""

import torch
from torch import Tensor

from kru.reservoir.equations import Linear
from kru.reservoir.ridge import Rows


def fit_conjugate_gradients(
    rows: Rows,
    features: int,
    outputs: int,
    strength: float,
    *,
    tolerance: float = 1e-6,
    iterations: int = 200,
) -> Linear:
    """argmin sum |V f + c - y|^2 + strength |V|^2 with memory O(S O), for reservoirs too large for S^2 numbers.

    Solves (G + strength) V' = C for the centred sums G = sum f f' and C = sum f y', preconditioned by the diagonal
    of G, until the residual has fallen below `tolerance` times its start. Each iteration calls `rows` once.
    """
    count, sum_f, sum_y = 0, torch.zeros(features).double(), torch.zeros(outputs).double()
    diagonal, cross = torch.zeros(features).double(), torch.zeros(features, outputs).double()
    for chunk, targets in rows():
        f, y = chunk.double(), targets.double()
        count += len(f)
        sum_f += f.sum(0)
        sum_y += y.sum(0)
        diagonal += f.square().sum(0)
        cross.addmm_(f.T, y)
    if count < 2:
        raise ValueError(f"washout: expected at least two steps after the washout, got {count}")
    if strength <= 0:
        raise ValueError(f"ridge: expected a strength above zero for conjugate gradients, got {strength}")
    mean_f, mean_y = sum_f / count, sum_y / count
    cross -= count * torch.outer(mean_f, mean_y)
    diagonal = (diagonal - count * mean_f.square()).clamp(min=0) + strength

    def product(v: Tensor) -> Tensor:
        out = strength * v
        shift = mean_f @ v
        for chunk, _ in rows():
            f = chunk.double()
            centred = f @ v - shift
            out.addmm_(f.T, centred)
            out -= torch.outer(mean_f, centred.sum(0))
        return out

    solution = torch.zeros_like(cross)
    residual = cross.clone()
    scaled = residual / diagonal.unsqueeze(1)
    direction = scaled.clone()
    energy = (residual * scaled).sum(0)
    start = energy.clone()
    for _ in range(iterations):
        if bool((energy <= tolerance**2 * start).all()):
            break
        image = product(direction)
        length = energy / (direction * image).sum(0).clamp(min=1e-300)
        solution += length * direction
        residual -= length * image
        scaled = residual / diagonal.unsqueeze(1)
        new = (residual * scaled).sum(0)
        direction = scaled + new / energy.clamp(min=1e-300) * direction
        energy = new
    return Linear(solution.T, mean_y - solution.T @ mean_f)
