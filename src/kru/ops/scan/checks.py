"""Checks of scan's arguments. Each error names the argument, what came and what was expected."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.cells import CELLS, NONLINEARITIES


def check_scan_types(arguments: ScanArguments) -> None:
    """Whether each argument is what its annotation says. All tensors but x and the factors may be None."""
    given: object = arguments.factors
    if isinstance(given, Tensor) or not hasattr(given, "__len__"):
        raise TypeError(f"factors: expected a list of at least one matrix, got {type(given).__name__}")
    for name, tensor in arguments.tensors.items():
        if name == "factors":
            for f, factor in enumerate(arguments.factors):
                _check_tensor(f"factors[{f}]", factor)
        elif tensor is not None or name == "x":
            _check_tensor(name, tensor)
    if not isinstance(arguments.cell, str):
        raise TypeError(f"cell: expected one of {', '.join(CELLS)}, got {arguments.cell!r}")
    if not isinstance(arguments.nonlinearity, str):
        raise TypeError(
            f"nonlinearity: expected one of {', '.join(NONLINEARITIES)}, got {arguments.nonlinearity!r}"
        )
    if not isinstance(arguments.reverse, bool):
        raise TypeError(f"reverse: expected True or False, got {arguments.reverse!r}")


def _check_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")


def check_scan_arguments(arguments: ScanArguments) -> None:
    """Raise an error that names the argument, what came and what was expected."""
    x, weight, factors, bias, recurrent_bias, h0, c0, lengths, leak, reset, initial = arguments[:11]
    cell, nonlinearity = arguments.cell, arguments.nonlinearity
    if cell not in CELLS:
        raise ValueError(f"cell: expected one of {', '.join(CELLS)}, got {cell!r}")
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"nonlinearity: expected one of {', '.join(NONLINEARITIES)}, got {nonlinearity!r}")
    if arguments.is_complex and arguments.has_gates:
        raise ValueError(f"field: the {cell} cell has real gates, expected real, got complex")
    units = _check_factors(factors, arguments.leading)
    state = arguments.planes * units
    width = arguments.gates * state

    symbols = not x.is_floating_point()
    dtype = factors[0].dtype if symbols else x.dtype
    if symbols:
        if x.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"x: expected a floating point tensor or integer symbols, got {x.dtype}")
        if weight is None:
            raise ValueError("weight: expected the input map (G * S, D) for symbols, got None")
    expected_dim = 2 if symbols else 3
    if x.dim() != expected_dim:
        shape = "symbols (T, B)" if symbols else "shape (T, B, D)"
        raise ValueError(f"x: expected {shape}, got shape {tuple(x.shape)}")
    batch = arguments.batch
    if weight is None:
        if x.shape[2] != width:
            raise ValueError(
                f"x: without a weight x is the input part, expected a last dimension of {width}, "
                f"got shape {tuple(x.shape)}"
            )
    else:
        _check_shape("weight", weight, (width, None if symbols else x.shape[2]))
    _check_shape("bias", bias, (units if arguments.has_inner_bias else width,))
    if recurrent_bias is not None and cell != "gru":
        raise ValueError(f"recurrent_bias: expected None for the {cell} cell, got a tensor")
    _check_shape("recurrent_bias", recurrent_bias, (units,))
    _check_shape("h0", h0, (batch, state))
    if c0 is not None and not arguments.has_memory:
        raise ValueError(f"c0: expected None for the {cell} cell, got a tensor")
    _check_shape("c0", c0, (batch, state))
    if leak is not None and arguments.has_gates:
        raise ValueError(f"leak: expected None for the {cell} cell, got a tensor")
    _check_shape("leak", leak, (units,))
    _check_shape("initial", initial, (state,))
    if initial is not None and reset is None:
        raise ValueError("initial: expected None without reset, got a tensor")
    named = {
        "weight": weight,
        "bias": bias,
        "recurrent_bias": recurrent_bias,
        "h0": h0,
        "c0": c0,
        "leak": leak,
        "initial": initial,
    }
    named |= {f"factors[{f}]": factor for f, factor in enumerate(factors)}
    for name, tensor in named.items():
        if tensor is None:
            continue
        if tensor.dtype != dtype:
            raise TypeError(f"{name}: expected dtype {dtype}, got {tensor.dtype}")
        if tensor.device != x.device:
            raise ValueError(f"{name}: expected x's device {x.device}, got {tensor.device}")
    if not 0 <= arguments.every <= arguments.steps:
        raise ValueError(f"every: expected 0 to the {arguments.steps} steps of x, got {arguments.every}")
    if not (arguments.need_states or arguments.every):
        raise ValueError("need_states: expected True without every, got False")
    check_lengths(lengths, batch, x.device)
    check_reset(reset, arguments.steps, batch, x.device)


def check_reset(reset: Tensor | None, steps: int, batch: int, device: torch.device) -> None:
    """A mask, one value for each step of each sequence, on x's device."""
    if reset is None:
        return
    if reset.dtype is not torch.bool:
        raise TypeError(f"reset: expected a mask of dtype torch.bool, got {reset.dtype}")
    _check_shape("reset", reset, (steps, batch))
    if reset.device != device:
        raise ValueError(f"reset: expected x's device {device}, got {reset.device}")


def check_lengths(lengths: Tensor | None, batch: int, device: torch.device) -> None:
    """Integers, one for each sequence, on x's device or on the CPU."""
    if lengths is None:
        return
    if lengths.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"lengths: expected integers, got {lengths.dtype}")
    _check_shape("lengths", lengths, (batch,))
    if lengths.device not in (device, torch.device("cpu")):
        raise ValueError(f"lengths: expected x's device {device} or cpu, got {lengths.device}")


def check_wants(wants: list[bool], inputs: Sequence[Tensor | None]) -> None:
    """A gradient can be wanted of each tensor that is there and holds no integers."""
    possible = [
        tensor is not None and (tensor.is_floating_point() or tensor.is_complex()) for tensor in inputs
    ]
    if len(wants) != len(inputs) or any(want and not can for want, can in zip(wants, possible, strict=True)):
        raise ValueError(f"wants: expected {len(inputs)} flags, True at most where {possible}, got {wants}")


def _check_factors(factors: Sequence[Tensor], leading: tuple[int, ...]) -> int:
    """The number of units N = prod P_f = prod Q_f."""
    if len(factors) == 0:
        raise ValueError("factors: expected at least one matrix, got none")
    shape = ", ".join([*map(str, leading), "P", "Q"])
    for f, factor in enumerate(factors):
        before, extra = factor.shape[:-2], factor.dim() - 2 - len(leading)
        if extra not in (0, 1) or before[extra:] != leading or 0 in factor.shape:
            raise ValueError(
                f"factors[{f}]: expected shape ({shape}), or (R, {shape}) for R terms, got {tuple(factor.shape)}"
            )
        if before != (first := factors[0].shape)[:-2]:
            raise ValueError(
                f"factors[{f}]: expected as many terms as in factors[0] of shape {tuple(first)}, "
                f"got {tuple(factor.shape)}"
            )
    rows, columns = (prod(factor.shape[dim] for factor in factors) for dim in (-2, -1))
    if rows != columns:
        shapes = ", ".join(str(tuple(factor.shape[-2:])) for factor in factors)
        raise ValueError(
            f"factors: expected a square recurrent matrix, got {rows} x {columns} from the factors {shapes}"
        )
    return rows


def _check_shape(name: str, tensor: Tensor | None, shape: tuple[int | None, ...]) -> None:
    """An entry None of the shape fits every size."""
    if tensor is None:
        return
    fits = tensor.dim() == len(shape) and all(
        want is None or got == want for got, want in zip(tensor.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("*" if want is None else str(want) for want in shape)
        raise ValueError(f"{name}: expected shape ({wanted}), got {tuple(tensor.shape)}")


def check_scan_values(x: Tensor, weight: Tensor | None, lengths: Tensor | None) -> None:
    """What shapes do not tell: symbols are columns of the weight, lengths lie between 0 and the number of steps.

    Tensors on the meta device have no values to check.
    """
    if not x.is_floating_point() and weight is not None and x.numel() and not x.is_meta:
        low, high = (int(bound) for bound in torch.aminmax(x))
        if low < 0 or high >= weight.shape[1]:
            raise IndexError(
                f"x: expected symbols from 0 to {weight.shape[1] - 1}, got {low if low < 0 else high}"
            )
    if lengths is not None and lengths.numel() and not lengths.is_meta:
        low, high = (int(bound) for bound in torch.aminmax(lengths))
        if low < 0 or high > x.shape[0]:
            raise ValueError(
                f"lengths: expected values from 0 to the {x.shape[0]} steps of x, got {low if low < 0 else high}"
            )
