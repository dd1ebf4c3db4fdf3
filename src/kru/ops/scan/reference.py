"""The recurrence in plain PyTorch: one step after the other, on any device, differentiable any number of times.

This file is the definition of what `kru.ops.scan` computes. The native kernels are compared with it.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kru.ops.kron.reference import kron_matmul_reference, terms_of

MODRELU_FLOOR = 1e-6
"""modReLU divides by max(|z|, MODRELU_FLOOR)."""
LEAK = 0.1
"""The slope of the leaky ReLU below zero."""


def modrelu(z: Tensor, bias: Tensor, *, is_complex: bool) -> Tensor:
    """(|z| + b) z / max(|z|, 1e-6) where |z| + b >= 0, else 0, with one real b per unit.

    A complex z of N units has 2N values, real parts then imaginary parts. At z = 0 the function has no derivative
    for b > 0; there the derivative with respect to z is taken as 1 for b >= 0 and 0 for b < 0, which keeps a state
    that is exactly zero for many steps from multiplying the gradient by b / 1e-6 in each.
    """
    squares = z * z
    if is_complex:
        re, im = squares.chunk(2, dim=-1)
        squares = re + im
    zero = squares == 0
    size = torch.where(zero, torch.ones_like(squares), squares).sqrt()
    scale = torch.clamp(size + bias, min=0) / torch.clamp(size, min=MODRELU_FLOOR)
    scale = torch.where(zero, (bias >= 0).to(z.dtype), scale)
    if is_complex:
        scale = torch.cat([scale, scale], dim=-1)
    return z * scale


def recurrent_product(h: Tensor, factors: Sequence[Tensor], *, is_complex: bool) -> Tensor:
    """h W^T for h (B, S). Complex factors are (2, P, Q) and a complex h is (B, 2N), real parts then imaginary."""
    if not is_complex:
        return kron_matmul_reference(h, factors)
    products = [_complex_product(h, term) for term in terms_of(factors, dims=3)]
    return products[0] if len(products) == 1 else torch.stack(products).sum(0)


def _complex_product(h: Tensor, factors: Sequence[Tensor]) -> Tensor:
    re, im = h.chunk(2, dim=-1)
    for f in reversed(range(len(factors))):
        q = factors[f].shape[-1]
        right = 1
        for factor in factors[f + 1 :]:
            right *= factor.shape[-2]
        w_re, w_im = factors[f][0], factors[f][1]
        re, im = re.reshape(-1, q, right), im.reshape(-1, q, right)
        re, im = w_re @ re - w_im @ im, w_re @ im + w_im @ re
    half = (h.shape[0], h.shape[1] // 2)
    return torch.cat([re.reshape(half), im.reshape(half)], dim=-1)


def scan_reference(
    x: Tensor,
    weight: Tensor | None,
    factors: Sequence[Tensor],
    *,
    cell: str,
    nonlinearity: str,
    is_complex: bool,
    bias: Tensor | None,
    recurrent_bias: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """All states (T, B, S), the last state (B, S) and, for the LSTM, the last cell state. See `kru.ops.scan`."""
    steps, batch = x.shape[0], x.shape[1]
    inputs = input_part(x, weight, bias if nonlinearity != "modrelu" or cell != "elman" else None)
    gates = {"elman": 1, "lstm": 4, "gru": 3}[cell]
    size = inputs.shape[-1] // gates
    h = h0 if h0 is not None else inputs.new_zeros(batch, size)
    c = c0 if c0 is not None else inputs.new_zeros(batch, size)
    step = _step_function(cell, nonlinearity, is_complex, factors, bias, recurrent_bias)
    states: list[Tensor] = [inputs.new_zeros(batch, size)] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        new_h, new_c = step(inputs[t], h, c)
        if lengths is None:
            h, c = new_h, new_c
            states[t] = h
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h, c = torch.where(active, new_h, h), torch.where(active, new_c, c)
            states[t] = torch.where(active, new_h, torch.zeros_like(new_h))
    stacked = torch.stack(states) if steps else inputs.new_zeros(0, batch, size)
    return stacked, h, (c if cell == "lstm" else None)


def input_part(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """a_t = U x_t + bias for all steps; symbols pick columns of U; without a weight x is a_t already."""
    if weight is None:
        return x if bias is None else x + bias
    if not x.is_floating_point():
        embedded = torch.nn.functional.embedding(x, weight.t())
        return embedded if bias is None else embedded + bias
    return torch.nn.functional.linear(x, weight, bias)


def _step_function(
    cell: str,
    nonlinearity: str,
    is_complex: bool,
    factors: Sequence[Tensor],
    bias: Tensor | None,
    recurrent_bias: Tensor | None,
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """step(a_t, h_{t-1}, c_{t-1}) -> h_t, c_t. Cells without a c hand it through."""
    if cell == "elman":

        def elman(a: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            z = recurrent_product(h, factors, is_complex=is_complex) + a
            if nonlinearity == "modrelu":
                b = bias if bias is not None else z.new_zeros(z.shape[-1] // (2 if is_complex else 1))
                return modrelu(z, b, is_complex=is_complex), c
            if nonlinearity == "tanh":
                return torch.tanh(z), c
            if nonlinearity == "relu":
                return torch.relu(z), c
            if nonlinearity == "leaky_relu":
                return torch.nn.functional.leaky_relu(z, LEAK), c
            return z, c

        return elman

    def product(gate: int, h: Tensor) -> Tensor:
        return kron_matmul_reference(h, [factor.select(-3, gate) for factor in factors])

    if cell == "lstm":

        def lstm(a: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            i, f, g, o = (part + product(gate, h) for gate, part in enumerate(a.chunk(4, dim=-1)))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

        return lstm

    def gru(a: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        a_r, a_z, a_n = a.chunk(3, dim=-1)
        r = torch.sigmoid(a_r + product(0, h))
        z = torch.sigmoid(a_z + product(1, h))
        recurrent = product(2, h)
        if recurrent_bias is not None:
            recurrent = recurrent + recurrent_bias
        n = torch.tanh(a_n + r * recurrent)
        return (1 - z) * n + z * h, c

    return gru
