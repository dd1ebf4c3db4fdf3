"""Recurrent matrices that are products of cheap unitary ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.matrices.base import RecurrentMatrix
from kru.ops.stages import Stage, apply


class StructuredMatrix(RecurrentMatrix):
    """A complex N x N matrix that is a product of stages, unitary whatever its parameters are.

    It runs either as one dense factor or, from `stages_from` units on, stage by stage, whichever was measured
    to be faster: the product with the dense matrix costs N^2, but the native kernels are quick at it, and the
    stages are PyTorch operations.
    """

    stages_from: int

    def __init__(self, size: int) -> None:
        super().__init__(((size, size),), field="complex", gates=1, constraint="exact")
        self.size = size

    def stages(self) -> Sequence[Stage]:
        """What W is made of, the first one applied first; in float32 where parameters are in half precision."""
        raise NotImplementedError

    def factors(self) -> list[Tensor]:
        stages = self.stages()
        like = next(t for stage in stages for t in stage.tensors if t.is_complex())
        # Row k becomes W e_k.
        w = apply(stages, torch.eye(self.size, dtype=like.dtype, device=like.device)).mT
        return [torch.stack([w.real, w.imag])]
