"""Gradients that can themselves be differentiated, for operators whose backward pass is written out."""

from collections.abc import Sequence

import torch
from torch import Tensor


def differentiable_gradients(
    results: Sequence[Tensor | None],
    incoming: Sequence[Tensor | None],
    inputs: Sequence[Tensor | None],
    wants: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of those inputs that are wanted, by autograd through results of a differentiable reference."""
    pairs = [
        (result, gradient)
        for result, gradient in zip(results, incoming, strict=True)
        if result is not None and gradient is not None
    ]
    wanted = [tensor for tensor, want in zip(inputs, wants, strict=True) if want and tensor is not None]
    found = iter(
        torch.autograd.grad(
            [result for result, _ in pairs],
            wanted,
            [gradient for _, gradient in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
    return [next(found) if want else None for want in wants]
