"""How an operator is made known to torch: its schema, its CPU kernel, its shapes for tracing, its gradient."""

from collections.abc import Callable
from typing import Any

import torch

_library: Any = torch.library.Library("kru", "FRAGMENT")  # type: ignore[no-untyped-call]


def register(
    schema: str,
    cpu: Callable[..., Any],
    fake: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> None:
    """Register ``kru::name`` for a schema ``name(...) -> ...``."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"kru::{name}", fake, lib=_library)
    if backward is not None:
        torch.library.register_autograd(f"kru::{name}", backward, setup_context=setup_context, lib=_library)
