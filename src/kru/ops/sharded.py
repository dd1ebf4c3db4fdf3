"""Parameters that are sharded over processes (DTensors, as `torch.distributed.fsdp.fully_shard` makes them)."""

from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor. By its method: importing the class takes a second."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its entries: one that is sharded is gathered, so all processes have to call this.

    Its gradient is taken to be the same in all processes. It is for what is computed from parameters alone, and wrong
    for what depends on a process's own data.
    """
    if not is_sharded(tensor):
        return tensor
    full: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return full


@torch.no_grad()
def assign(tensor: Tensor, values: Tensor) -> None:
    """Copy values, the same in all processes, to a tensor; where it is sharded, each process keeps its part."""
    if is_sharded(tensor):
        from torch.distributed.tensor import distribute_tensor

        layout: Any = tensor
        values = distribute_tensor(
            values.to(tensor.dtype), layout.device_mesh, layout.placements, src_data_rank=None
        )
    tensor.copy_(values)


def with_whole_parameters(module: nn.Module, compute: Callable[[], Result]) -> Result:
    """What `compute` gives while the sharded parameters of a module are whole, see `whole`."""
    full = {name: whole(tensor) for name, tensor in _sharded(module).items()}
    return _with_tensors(module, full, compute)


@torch.no_grad()
def draw_whole_parameters(module: nn.Module, draw: Callable[[], None]) -> None:
    """Run a function that sets all parameters of a module, and shard what it sets where the parameters are sharded.

    Every process draws all values and keeps its part, so their generators have to be in the same state.
    """
    sharded = _sharded(module)
    full = {
        name: torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        for name, tensor in sharded.items()
    }
    _with_tensors(module, full, draw)
    for name, tensor in sharded.items():
        assign(tensor, full[name])


def _sharded(module: nn.Module) -> dict[str, Tensor]:
    tensors = chain(module.named_parameters(), module.named_buffers())
    return {name: tensor for name, tensor in tensors if is_sharded(tensor)}


class _Calling(nn.Module):
    """A function as a module, as `torch.func.functional_call` takes it; hooks of the module inside don't run."""

    def __init__(self, module: nn.Module, compute: Callable[[], object]) -> None:
        super().__init__()
        self.module = module
        self.compute = compute

    def forward(self) -> object:
        return self.compute()


def _with_tensors(module: nn.Module, tensors: dict[str, Tensor], compute: Callable[[], Result]) -> Result:
    if not tensors:
        return compute()
    named = {f"module.{name}": tensor for name, tensor in tensors.items()}
    result: Result = torch.func.functional_call(_Calling(module, compute), named, ())
    return result
