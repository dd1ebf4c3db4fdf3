"""The recurrence in plain PyTorch: one step after the other, on any device, differentiable any number of times.

This file is the definition of what `kru.ops.scan` computes. The native kernels and the fallback, which shares all of it
but the product with the recurrent matrix, are compared with it.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kru.ops.kron.reference import kron_matmul_reference, terms_of
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.cells import NONLINEARITIES, modrelu
from kru.ops.time_steps import restarts, time_order

Product = Callable[[Tensor], Sequence[Tensor]]
"""W h for each gate: h (B, S) gives G tensors (B, S)."""


def scan_reference(arguments: ScanArguments) -> tuple[Tensor, Tensor, Tensor | None]:
    """All states (T, B, S), the last state (B, S) and, for the LSTM, the last cell state. See `kru.ops.scan`."""
    return run_steps(arguments, recurrent_product(arguments, arguments.factors))


def recurrent_product(arguments: ScanArguments, factors: Sequence[Tensor]) -> Product:
    """The product with the recurrent matrices, one factor after the other."""
    if arguments.is_complex:
        return lambda h: [_complex_product(h, factors)]
    if not arguments.has_gates:
        return lambda h: [kron_matmul_reference(h, factors)]
    gates = [[factor.select(-3, gate) for factor in factors] for gate in range(arguments.gates)]
    return lambda h: [kron_matmul_reference(h, gate) for gate in gates]


def _complex_product(h: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """h W^T for factors (2, P, Q) or (R, 2, P, Q) and h (B, 2N), real parts then imaginary parts."""
    products = [_complex_term(h, term) for term in terms_of(factors, dims=3)]
    return products[0] if len(products) == 1 else torch.stack(products).sum(0)


def _complex_term(h: Tensor, factors: Sequence[Tensor]) -> Tensor:
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


def run_steps(arguments: ScanArguments, product: Product) -> tuple[Tensor, Tensor, Tensor | None]:
    """The recurrence, one step after the other, with the recurrent matrices as given by `product`."""
    steps, lengths = arguments.steps, arguments.lengths
    inputs = input_part(arguments.x, arguments.weight, None if arguments.has_inner_bias else arguments.bias)
    zeros = inputs.new_zeros(arguments.batch, arguments.state)
    h = arguments.h0 if arguments.h0 is not None else zeros
    c = arguments.c0 if arguments.c0 is not None else zeros
    step = _step_function(arguments, product)
    states = [zeros] * steps
    # Not inputs[t]: the gradient of each index would fill a tensor as large as all inputs.
    parts = inputs.unbind(0)
    anew = restarts(arguments.reset, lengths, reverse=arguments.reverse)
    initial = arguments.initial if arguments.initial is not None else zeros
    for t in time_order(steps, arguments.reverse):
        if anew is not None:
            h, c = torch.where(anew[t], initial, h), torch.where(anew[t], zeros, c)
        new_h, new_c = step(parts[t], h, c)
        if lengths is None:
            h, c = new_h, new_c
            states[t] = h
        else:
            active = (lengths.to(h.device) > t).unsqueeze(-1)
            h, c = torch.where(active, new_h, h), torch.where(active, new_c, c)
            states[t] = torch.where(active, new_h, zeros)
    stacked = torch.stack(states) if steps else inputs.new_zeros(0, *zeros.shape)
    return stacked, h, (c if arguments.has_memory else None)


def input_part(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """a_t = U x_t + bias for all steps; symbols pick columns of U; without a weight x is a_t already."""
    if weight is None:
        return x if bias is None else x + bias
    if not x.is_floating_point():
        embedded = torch.nn.functional.embedding(x, weight.t())
        return embedded if bias is None else embedded + bias
    return torch.nn.functional.linear(x, weight, bias)


def _step_function(
    arguments: ScanArguments, product: Product
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """step(a_t, h_{t-1}, c_{t-1}) -> h_t, c_t. Cells without a c hand it through."""
    if arguments.cell == "elman":
        sigma = _nonlinearity(arguments)
        leak = arguments.leak
        if leak is not None:
            leak = leak.repeat(arguments.planes)

        def elman(a: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            new = sigma(product(h)[0] + a)
            return (new if leak is None else h + leak * (new - h)), c

        return elman

    if arguments.cell == "lstm":

        def lstm(a: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            i, f, g, o = (part + past for part, past in zip(a.chunk(4, dim=-1), product(h), strict=True))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

        return lstm

    recurrent_bias = arguments.recurrent_bias

    def gru(a: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        a_r, a_z, a_n = a.chunk(3, dim=-1)
        past_r, past_z, past_n = product(h)
        r = torch.sigmoid(a_r + past_r)
        z = torch.sigmoid(a_z + past_z)
        if recurrent_bias is not None:
            past_n = past_n + recurrent_bias
        n = torch.tanh(a_n + r * past_n)
        return (1 - z) * n + z * h, c

    return gru


def _nonlinearity(arguments: ScanArguments) -> Callable[[Tensor], Tensor]:
    function = NONLINEARITIES[arguments.nonlinearity].function
    if function is not None:
        return function

    def with_bias(z: Tensor) -> Tensor:
        bias = arguments.bias if arguments.bias is not None else z.new_zeros(arguments.units)
        return modrelu(z, bias, is_complex=arguments.is_complex)

    return with_bias
