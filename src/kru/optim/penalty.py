"""The soft unitary constraint."""

from collections import defaultdict
from math import prod
from statistics import mean

import torch
from torch import Tensor, nn

from kru.linalg.unitary import gram_defect, sum_gram_defect
from kru.matrices import RecurrentMatrix
from kru.ops.precision import without_autocast


def unitary_penalty(module: nn.Module) -> Tensor:
    """sum_f ||W_f^H W_f - I||^2 over the factors of all recurrent matrices in a module: a differentiable
    scalar.

    A Kronecker product is unitary if its factors are, so the penalty on a few small matrices keeps W near the
    unitary set. Its strength is yours to choose, as in ``loss + 1e-3 * kru.unitary_penalty(model)``. Layers
    with ``constraint="exact"`` or ``"none"`` contribute nothing, nor do layers that aren't recurrent: the
    penalty of a model without recurrent layers of this library is zero.

    A sum of several products (``rank=``) is not unitary because its factors are, and factors of a small term need not
    be. Its penalty is that of the sum itself, n/N ||W^H W - I||^2, which follows from the factors too; n is the mean
    size of its factors, so that it is as strong as that of a single product: where one factor's Gram matrix is off by
    a matrix E of trace zero, both are ||E||^2 for factors of equal sizes.

    Parameters that are sharded over processes (`fully_shard`) are gathered first: all processes have to call this.

    >>> import torch, kru
    >>> model = torch.nn.ModuleDict({"rnn": kru.KRU(10, 128), "head": torch.nn.Linear(256, 10)})
    >>> bool(kru.unitary_penalty(model) < 1e-9)
    True
    >>> with torch.no_grad():
    ...     model["rnn"].matrix().factor_0.mul_(2)
    Parameter containing: ...
    >>> round(kru.unitary_penalty(model).item(), 3)
    18.0
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a module with recurrent layers, got {type(module).__name__}")
    matrices = [(name, m) for name, m in module.named_modules() if isinstance(m, RecurrentMatrix)]
    # Factors of one kind go through one batched product: the many tiny ones would cost a dispatch each.
    alike: dict[tuple[str, torch.Size, torch.dtype, torch.device], list[Tensor]] = defaultdict(list)
    parts = []
    for name, matrix in matrices:
        if matrix.constraint != "soft":
            continue
        if matrix.rank > 1:
            parts.append(_sum_penalty(matrix))
            continue
        if not matrix.is_square:
            raise ValueError(
                f"module: expected square factors, got {matrix.extra_repr()} in {name or 'the module'}: "
                'rectangular factors can\'t be unitary; build that layer with constraint="none"'
            )
        for factor in matrix.whole_factors():
            alike[matrix.field, factor.shape, factor.dtype, factor.device].append(factor)
    for (field, _, _, device), factors in alike.items():
        with without_autocast(device.type):
            parts.append(gram_defect(torch.stack(factors), field=field).sum())
    return torch.stack(parts).sum() if parts else torch.zeros(())


def _sum_penalty(matrix: RecurrentMatrix) -> Tensor:
    columns = [columns for _, columns in matrix.shapes]
    factors = matrix.whole_factors()
    with without_autocast(factors[0].device.type):
        return mean(columns) / prod(columns) * sum_gram_defect(factors, field=matrix.field).sum()
