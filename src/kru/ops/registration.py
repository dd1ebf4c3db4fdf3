"""How an operator is registered with torch: schema, CPU and GPU kernels, shapes for tracing, gradient."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from kru.ops.bindings import check_memory

_library: Any = torch.library.Library("kru", "FRAGMENT")  # type: ignore[no-untyped-call]


def register(
    schema: str,
    cpu: Callable[..., Any],
    fake: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
    *,
    gpu: Callable[..., Any] | None = None,
) -> None:
    """Register ``kru::name`` for a schema ``name(...) -> ...``."""
    name = schema.partition("(")[0]
    _library.define(schema)
    names = tuple(argument.name for argument in torch._C.parse_schema(schema).arguments)
    _library.impl(name, _guarded(cpu, names), "CPU")
    if gpu is not None:
        _library.impl(name, _guarded(gpu, names), "CUDA")  # ROCm's tensors count as CUDA's
    torch.library.register_fake(f"kru::{name}", fake, lib=_library)
    if backward is not None:
        torch.library.register_autograd(f"kru::{name}", backward, setup_context=setup_context, lib=_library)


def _guarded(kernel: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    """The kernel as if it were written in C++ throughout: no mode sees or changes what it does inside.

    A default device or another mode could otherwise put the kernel's own tensors where its pointers cannot reach.
    Tensors that come in without the memory that their shapes promise are refused before anything reads them.
    """

    @wraps(kernel)
    def guarded(*arguments: Any) -> Any:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for name, argument in zip(names, arguments, strict=False):
                check_memory(name, argument)
            return kernel(*arguments)

    return guarded
