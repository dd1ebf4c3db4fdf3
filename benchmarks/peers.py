"""What people use today, as contestants. Each computes the same as ours."""

import importlib.util
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def reshape_matmul(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """One `reshape @ W^T` and a transposition for each factor: the fastest chain of PyTorch operations."""
    rows = x.shape[0]
    for factor in reversed(factors):
        q = factor.shape[1]
        x = (x.reshape(rows, -1, q) @ factor.t()).transpose(1, 2)
    return x.reshape(rows, -1)


def fastkron(x: Tensor, factors: Sequence[Tensor]) -> Callable[[], Tensor] | None:
    """FastKron, where installed. Real only. It multiplies by W, not W^T: factors are transposed."""
    if importlib.util.find_spec("pyfastkron") is None or x.is_complex():
        return None
    from pyfastkron import fastkrontorch

    transposed = [factor.t().contiguous() for factor in factors]
    return lambda: fastkrontorch.gemkm(x, transposed)


def jax_elementwise(x: Tensor, factors: Sequence[Tensor]) -> Callable[[], object] | None:
    """jax.jit of the elementwise form for 2x2 factors, where jax is installed."""
    if importlib.util.find_spec("jax") is None or any(tuple(factor.shape) != (2, 2) for factor in factors):
        return None
    import jax

    def product(x, factors):  # type: ignore[no-untyped-def]
        rows, size = x.shape
        for f, w in enumerate(factors):
            left = 1 << f
            y = x.reshape(rows, left, 2, size // (2 * left))
            a, b = y[:, :, 0], y[:, :, 1]
            x = jax.numpy.stack([w[0, 0] * a + w[0, 1] * b, w[1, 0] * a + w[1, 1] * b], 2).reshape(rows, size)
        return x

    compiled = jax.jit(product)
    arguments = (jax.numpy.asarray(x.numpy()), [jax.numpy.asarray(factor.numpy()) for factor in factors])
    return lambda: compiled(*arguments).block_until_ready()


class LoopKRU(torch.nn.Module):
    """KRU with complex 2x2 factors as a loop of PyTorch operations over time."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        count = units.bit_length() - 1
        self.factors = torch.nn.ParameterList(
            [torch.linalg.qr(torch.randn(2, 2, dtype=torch.complex64))[0] for _ in range(count)]
        )
        self.weight = torch.nn.Parameter(torch.randn(units, inputs, dtype=torch.complex64) * 0.05)
        self.bias = torch.nn.Parameter(torch.zeros(units))

    def forward(self, x: Tensor) -> Tensor:
        inputs = x.to(torch.complex64) @ self.weight.t()
        h = inputs.new_zeros(inputs.shape[1:])
        for a in inputs:
            z = h
            for factor in reversed(self.factors):
                z = (z.reshape(z.shape[0], -1, 2) @ factor.t()).transpose(1, 2)
            z = z.reshape(h.shape) + a
            size = z.abs().clamp(min=1e-6)
            h = torch.relu(size + self.bias) / size * z
        return h
