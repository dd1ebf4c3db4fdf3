"""The Kronecker product registered with torch: operator, native kernels for the CPU, shapes for tracing, gradient."""

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from kru.ops import bindings, gpu
from kru.ops.kron.checks import check_kron_arguments
from kru.ops.kron.reference import kron_matmul_reference
from kru.ops.registration import register


def direct_product(x: Tensor, factors: Sequence[Tensor]) -> Tensor | None:
    """The product where nobody watches and nothing is out of the ordinary; None where something is.

    For small products torch's dispatcher and the checks cost more than the arithmetic. This path looks at each argument
    once and leaves every other case, errors included, to the full one.
    """
    if (
        torch.compiler.is_compiling()
        or bindings.library is None
        or gpu.ON_CPU
        or type(x) is not Tensor
        or (kind := bindings.DTYPES.get(x.dtype)) is None
        or not x.is_cpu
        or not x.is_contiguous()
        or (kind[1] and x.is_conj())
        or x.is_neg()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()  # a default device, among others
        or bindings.transforming()
        or (x.requires_grad and torch.is_grad_enabled())
        or not (address := bindings.contiguous_address(x))
        or (ordinary := _ordinary(factors, x.dtype)) is None
    ):
        return None
    shapes, addresses, packed = ordinary
    columns, shape = shapes.columns, x.shape
    if not shape or shape[-1] != columns or not shapes.matrices:
        return None
    y = torch.empty_like(x) if shapes.rows == columns else bindings.empty((*shape[:-1], shapes.rows), x)
    call = bindings.pack_kron_call(
        *kind,
        torch.get_num_threads(),
        shapes.count,
        x.numel() // columns,
        1,
        shapes.p,
        shapes.q,
        0 if addresses is None else ctypes.addressof(addresses),
        address,
        y.data_ptr(),
        0,
        0,
        0,
        0 if packed is None else packed.data_ptr(),
    )
    bindings.check_status(bindings.kron_forward_packed(call))
    return y


def _ordinary(factors: Sequence[Tensor], dtype: torch.dtype) -> tuple[bindings.Shapes, Any, Any] | None:
    """Shapes of ordinary factors on the CPU without gradient, and an array of their addresses or all of them packed."""
    if not isinstance(factors, (list, tuple)) or not bindings.PLAIN.issuperset(map(type, factors)):
        return None
    count = len(factors)
    try:
        size = factors[0].shape
        if count > 3 and len(size) == 2 and size == factors[-1].shape:
            # One stack of many small factors costs less than an address of each, and settles strides and lazy bits. But
            # torch reads beyond the end of a storage that was resized, and a call for each factor would cost more.
            step = dtype.itemsize
            needed = size[0] * size[1] * step
            if not all(
                [
                    factor.dtype is dtype
                    and (
                        factor.untyped_storage().nbytes() >= needed + factor.storage_offset() * step
                        if factor.is_contiguous()
                        else bindings.in_memory(factor)
                    )
                    for factor in factors
                ]
            ):
                return None
            packed = torch.stack(factors)
            if packed.requires_grad or not packed.is_cpu or not bindings.contiguous_address(packed):
                return None
            return bindings.equal_shapes(size, count), None, packed
        grad = torch.is_grad_enabled()
        for factor in factors:
            if (
                factor.dtype is not dtype
                or factor.dim() != 2
                or not factor.is_cpu
                or not factor.is_contiguous()
                or factor.is_conj()
                or factor.is_neg()
                or (grad and factor.requires_grad)
            ):
                return None
        addresses = [bindings.contiguous_address(factor) for factor in factors]
        if not all(addresses):
            return None
        shapes = bindings.shapes_of(*[factor.shape for factor in factors])
        return shapes, shapes.pointers(*addresses), None
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None


def _call(x: Tensor, factors: Sequence[Tensor]) -> tuple[bindings.KronCall, bindings.Shapes, list[Tensor]]:
    """A call with its inputs, and the tensors that its pointers point into."""
    check_kron_arguments(x, factors)
    if x.dtype not in bindings.DTYPES:
        raise TypeError(f"x: expected one of {', '.join(map(str, bindings.DTYPES))}, got {x.dtype}")
    shapes = bindings.shapes_of(*[factor.shape[-2:] for factor in factors])
    kept = [bindings.dense(factor) for factor in factors]
    pointers = shapes.pointers(*[factor.data_ptr() for factor in kept])
    kept.append(bindings.dense(x))
    precision, is_complex = bindings.DTYPES[x.dtype]
    call = bindings.KronCall(
        precision,
        is_complex,
        torch.get_num_threads(),
        shapes.count,
        x.numel() // shapes.columns,
        prod(factors[0].shape[:-2]),
        shapes.p,
        shapes.q,
        ctypes.addressof(pointers),
        kept[-1].data_ptr(),
    )
    kept.append(pointers)
    return call, shapes, kept


def _forward_op(x: Tensor, factors: list[Tensor]) -> Tensor:
    if gpu.ON_CPU and gpu.runs(x):
        return _gpu_forward_op(x, factors)
    call, shapes, kept = _call(x, factors)
    y = bindings.empty((*x.shape[:-1], shapes.rows), x)
    call.y = y.data_ptr()
    assert bindings.library is not None
    bindings.check_status(bindings.library.kru_kron_forward(call))
    del kept
    return y


def _backward_op(dy: Tensor, x: Tensor, factors: list[Tensor], wants: list[bool]) -> list[Tensor]:
    """The wanted gradients, of x first and then of each factor; those not wanted are empty."""
    if gpu.ON_CPU and gpu.runs(x):
        return _gpu_backward_op(dy, x, factors, wants)
    call, shapes, kept = _call(x, factors)
    _check_backward(dy, x, factors, wants)
    dy = bindings.dense(dy)
    out = [bindings.empty(t.shape if want else (0,), t) for t, want in zip([x, *factors], wants, strict=True)]
    gradients = shapes.pointers(
        *[t.data_ptr() if w else None for t, w in zip(out[1:], wants[1:], strict=True)]
    )
    call.dy = dy.data_ptr()
    call.dx = out[0].data_ptr() if wants[0] else None
    call.dfactors = ctypes.addressof(gradients)
    assert bindings.library is not None
    bindings.check_status(bindings.library.kru_kron_backward(call))
    del kept
    return out


def _check_backward(dy: Tensor, x: Tensor, factors: list[Tensor], wants: list[bool]) -> None:
    rows = prod(factor.shape[-2] for factor in factors)
    bindings.check_same("dy", dy, (*x.shape[:-1], rows), x)
    if len(wants) != 1 + len(factors):
        raise ValueError(f"wants: expected {1 + len(factors)} flags, for x and each factor, got {len(wants)}")


def _gpu_forward_op(x: Tensor, factors: list[Tensor]) -> Tensor:
    check_kron_arguments(x, factors)
    gpu.check(x)
    from kru.ops.kron import triton

    return triton.forward(x, factors)


def _gpu_backward_op(dy: Tensor, x: Tensor, factors: list[Tensor], wants: list[bool]) -> list[Tensor]:
    check_kron_arguments(x, factors)
    gpu.check(x)
    _check_backward(dy, x, factors, wants)
    from kru.ops.kron import triton

    return triton.backward(dy, x, factors, wants)


def _forward_fake(x: Tensor, factors: list[Tensor]) -> Tensor:
    check_kron_arguments(x, factors)
    size = 1
    for factor in factors:
        size *= factor.shape[-2]
    return x.new_empty((*x.shape[:-1], size))


def _backward_fake(dy: Tensor, x: Tensor, factors: list[Tensor], wants: list[bool]) -> list[Tensor]:
    return [t.new_empty(t.shape if want else (0,)) for t, want in zip([x, *factors], wants, strict=True)]


def _setup_context(ctx: Any, inputs: tuple[Tensor, list[Tensor]], output: Tensor) -> None:
    x, factors = inputs
    ctx.save_for_backward(x, *factors)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, list[Tensor | None]]:
    x, *factors = ctx.saved_tensors
    wants = [ctx.needs_input_grad[0], *ctx.needs_input_grad[1]]
    if torch.is_grad_enabled():
        # The gradient is itself to be differentiated: take it through the reference, which can be.
        wanted = [t for t, want in zip([x, *factors], wants, strict=True) if want]
        gradients = iter(
            torch.autograd.grad(kron_matmul_reference(x, factors), wanted, dy, create_graph=True)
        )
        out = [next(gradients) if want else None for want in wants]
    else:
        gradients = torch.ops.kru.kron_matmul_backward(dy, x, factors, wants)
        out = [gradient if want else None for gradient, want in zip(gradients, wants, strict=True)]
    return out[0], out[1:]


register(
    "kron_matmul(Tensor x, Tensor[] factors) -> Tensor",
    _forward_op,
    _forward_fake,
    _backward,
    _setup_context,
    gpu=_gpu_forward_op,
)
register(
    "kron_matmul_backward(Tensor dy, Tensor x, Tensor[] factors, bool[] wants) -> Tensor[]",
    _backward_op,
    _backward_fake,
    gpu=_gpu_backward_op,
)
