"""A checksum of tensors: tells a damaged file from a whole one. It does not tell who wrote it."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 over `text` and over the name, dtype, shape and bytes of each tensor, in the order of the names.

    >>> one = checksum({"a": torch.zeros(2), "b": torch.ones(3)})
    >>> one == checksum({"b": torch.ones(3), "a": torch.zeros(2)})
    True
    >>> one == checksum({"b": torch.ones(3), "a": torch.zeros(1, 2)})
    False
    """
    digest = hashlib.sha256()
    _add(digest, text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        _add(digest, f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", part: bytes) -> None:
    # The length first: no two lists of parts then give the same bytes.
    digest.update(len(part).to_bytes(8, "little") + part)
