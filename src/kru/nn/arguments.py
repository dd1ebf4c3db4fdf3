"""The checks of a recurrent layer's constructor."""

import math
import warnings

import torch

from kru.ops.scan.cells import NONLINEARITIES
from kru.ops.scan.lean import MEMORY


def check_sizes(input_size: int, hidden_size: int, num_layers: int, proj_size: int) -> None:
    sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name}: expected a number greater than zero, got {value}")
    if proj_size != 0:
        raise ValueError(
            f"proj_size: expected 0, got {proj_size}: the factors make the recurrent matrix small already, "
            "and a projected state would need one that isn't square; put a Linear layer behind this one"
        )


def check_switches(**switches: bool) -> None:
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")


def check_memory(memory: str) -> None:
    if memory not in MEMORY:
        raise ValueError(f"memory: expected {' or '.join(MEMORY)}, got {memory!r}")


def check_nonlinearity(nonlinearity: str) -> None:
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"nonlinearity: expected one of {', '.join(NONLINEARITIES)}, got {nonlinearity!r}")


def check_initial_values(input_scale: float, initial_bias: float, nonlinearity: str, bias: bool) -> None:
    for name, value in (("input_scale", input_scale), ("initial_bias", initial_bias)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name}: expected a finite number, got {value!r}")
    if initial_bias and nonlinearity != "modrelu":
        raise ValueError(
            f"initial_bias: expected 0 with nonlinearity={nonlinearity!r}, got {initial_bias}: "
            "it is where the bias of modReLU starts"
        )
    if initial_bias and not bias:
        raise ValueError(f"initial_bias: expected 0 with bias=False, got {initial_bias}")


def check_dropout(dropout: float, num_layers: int) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout: expected a probability between 0 and 1, got {dropout!r}")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            f"dropout: acts between layers, so with num_layers=1 dropout={dropout} has no effect",
            stacklevel=4,
        )


def check_dtype(dtype: torch.dtype | None) -> None:
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f'dtype: expected a real floating point type, also with field="complex", got {dtype}')
