"""Recurrent matrices that are products of cheap unitary ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kru.matrices.base import RecurrentMatrix
from kru.ops.chain.stages import Stage, apply


class ChainMatrix(RecurrentMatrix):
    """A complex N x N matrix that is a product of stages, unitary for any values of its parameters.

    With modReLU on the native kernels it runs stage by stage where that is faster, see `pays`, else as one dense
    factor.
    """

    def __init__(self, size: int, stage_count: int) -> None:
        super().__init__(((size, size),), field="complex", gates=1, constraint="exact")
        self.size = size
        self.stage_count = stage_count

    def pays(self, batch: int) -> bool:
        """Whether the stages take less time than the dense matrix.

        By measurement: a row costs about N for each stage and N^2 with the dense matrix. But the stages fill
        vectors with rows, so that fewer than eight of them cost as much as eight.
        """
        return self.size * min(batch, 8) >= 64 * self.stage_count + 448

    def stages(self) -> Sequence[Stage]:
        """What W is made of, the first one applied first; in float32 where parameters are in half precision."""
        raise NotImplementedError

    def factors(self) -> list[Tensor]:
        stages = self.stages()
        like = next(t for stage in stages for t in stage.tensors if t.is_complex())
        # Row k becomes W e_k.
        w = apply(stages, torch.eye(self.size, dtype=like.dtype, device=like.device)).mT
        return [torch.stack([w.real, w.imag])]
