"""States of a sequence as one row."""

import torch
from torch import Tensor

POOLINGS = ("moments", "mean", "last")


class Pool:
    """Running mean ("mean"), mean and standard deviation ("moments") or last row of the real steps of each case.

    Chunks are features (t, B, F) with `real` (t, B).
    """

    def __init__(self, pooling: str) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: expected one of {', '.join(POOLINGS)}, got {pooling!r}")
        self.pooling = pooling
        self.value: Tensor | None = None
        self.square: Tensor | None = None
        self.count: Tensor | None = None

    def add(self, features: Tensor, real: Tensor) -> None:
        if self.value is None or self.count is None:
            self.value = features.new_zeros(features.shape[1:])
            self.count = torch.zeros(features.shape[1])
            self.square = torch.zeros_like(self.value)
        if self.pooling != "last":
            weight = real.to(features.dtype)
            self.value += torch.einsum("tbf,tb->bf", features, weight)
            if self.pooling == "moments":
                assert self.square is not None
                self.square += torch.einsum("tbf,tb->bf", features.square(), weight)
        else:
            seen = real.any(0)
            last = (torch.arange(1, len(real) + 1).unsqueeze(1) * real).max(0).values - 1
            self.value[seen] = features[last[seen], seen.nonzero().squeeze(1)]
        self.count += real.sum(0)

    def result(self) -> Tensor:
        """(B, F), with "moments" (B, 2F)."""
        assert self.value is not None
        assert self.count is not None
        assert self.square is not None
        if self.pooling == "last":
            return self.value
        count = self.count.clamp(min=1).to(self.value.dtype).unsqueeze(1)
        mean = self.value / count
        if self.pooling == "mean":
            return mean
        return torch.cat([mean, (self.square / count - mean.square()).clamp(min=0).sqrt()], -1)
