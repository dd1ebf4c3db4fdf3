"""Nonlinearities and their derivatives on the GPU. Complex numbers are two planes; the codes are those of `cells`.

A NaN must stay one, so limits are written as comparisons: the maximum of NaN and 0 would be 0.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

TANH = tl.constexpr(1)
RELU = tl.constexpr(2)
MODRELU = tl.constexpr(3)
LEAKY_RELU = tl.constexpr(4)
FLOOR = tl.constexpr(1e-6)
SLOPE = tl.constexpr(0.1)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """By e^(2|x|), and near zero, where that cancels, by the continued fraction."""
    size = tl.abs(x)
    large = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    s = x * x
    small = x * (105.0 + 10.0 * s) / (105.0 + s * (45.0 + s))
    return tl.where(size < 0.5, small, tl.where(x < 0, -large, large))


@triton.jit
def activate(z, SIGMA: tl.constexpr):
    if SIGMA == TANH:
        z = tanh(z)
    elif SIGMA == RELU:
        z = tl.where(z < 0, 0.0, z)
    elif SIGMA == LEAKY_RELU:
        z = tl.where(z < 0, SLOPE * z, z)
    return z


@triton.jit
def activation_gradient(s, g, SIGMA: tl.constexpr):
    """The gradient at z from that at s = sigma(z), by s."""
    if SIGMA == TANH:
        g = g * (1.0 - s * s)
    elif SIGMA == RELU:
        g = tl.where(s <= 0, 0.0, g)
    elif SIGMA == LEAKY_RELU:
        g = tl.where(s <= 0, SLOPE * g, g)
    return g


@triton.jit
def modrelu(re, im, b, COMPLEX: tl.constexpr):
    squares = re * re
    if COMPLEX:
        squares += im * im
    size = tl.sqrt_rn(tl.where(squares == 0, 1.0, squares))
    sum_ = size + b
    gain = tl.where(sum_ < 0, 0.0, sum_) / tl.where(size < FLOOR, FLOOR, size)
    gain = tl.where(squares == 0, tl.where(b >= 0, 1.0, 0.0), gain)
    if COMPLEX:
        im = im * gain
    return re * gain, im


@triton.jit
def modrelu_gradient(re, im, b, g_re, g_im, COMPLEX: tl.constexpr):
    """The gradients at z and b from that at modReLU(z)."""
    squares = re * re
    along = re * g_re
    if COMPLEX:
        squares += im * im
        along += im * g_im
    zero = squares == 0
    size = tl.sqrt_rn(tl.where(zero, 1.0, squares))
    low = size < FLOOR
    divisor = 1.0 / tl.where(low, FLOOR, size)
    active = tl.where(size + b < 0, 0.0, 1.0)
    gain = (size + b) * divisor
    at_zero = tl.where(b >= 0, 1.0, 0.0)
    if COMPLEX:
        # d gain / d size, over size: -b / size^3 above the floor, 1 / (floor size) below.
        inverse = 1.0 / size
        change = tl.where(low, inverse / FLOOR, -b * inverse * inverse * inverse) * along
        g_re = tl.where(zero, at_zero * g_re, active * (gain * g_re + change * re))
        g_im = tl.where(zero, at_zero * g_im, active * (gain * g_im + change * im))
    else:
        # The same sum, in which b / size cancels: left to rounding, it would remain for small z.
        slope = tl.where(low, (2.0 * size + b) / FLOOR, 1.0)
        g_re = tl.where(zero, at_zero * g_re, active * slope * g_re)
    return g_re, g_im, tl.where(zero, 0.0, active * along * divisor)


@triton.jit
def elman_step(re, im, h_re, h_im, b, leak, SIGMA: tl.constexpr, COMPLEX: tl.constexpr, LEAK: tl.constexpr):
    """h_t from z_t and, with a leak, h_{t-1}."""
    if SIGMA == MODRELU:
        re, im = modrelu(re, im, b, COMPLEX)
    else:
        re = activate(re, SIGMA)
        if COMPLEX:
            im = activate(im, SIGMA)
    if LEAK:
        re = h_re + leak * (re - h_re)
        if COMPLEX:
            im = h_im + leak * (im - h_im)
    return re, im


@triton.jit
def elman_gradient(
    re, im, h_re, h_im, b, leak, g_re, g_im, SIGMA: tl.constexpr, COMPLEX: tl.constexpr, LEAK: tl.constexpr
):
    """The gradients at z_t, at the bias of modReLU and at the leak from the gradient g at h_t.

    `re` and `im` are z_t with modReLU or a leak, else h_t, which tells the derivative as well. h_re and h_im are
    h_{t-1}; only a leak needs them.
    """
    dleak = g_re * 0.0
    dbias = dleak
    s_re, s_im = re, im
    if LEAK:
        s_re, s_im = elman_step(re, im, re, im, b, leak, SIGMA, COMPLEX, False)
        dleak = g_re * (s_re - h_re)
        g_re = leak * g_re
        if COMPLEX:
            dleak += g_im * (s_im - h_im)
            g_im = leak * g_im
    if SIGMA == MODRELU:
        g_re, g_im, dbias = modrelu_gradient(re, im, b, g_re, g_im, COMPLEX)
    else:
        g_re = activation_gradient(s_re, g_re, SIGMA)
        if COMPLEX:
            g_im = activation_gradient(s_im, g_im, SIGMA)
    return g_re, g_im, dbias, dleak
