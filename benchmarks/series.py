"""Series that reservoirs are compared on, made here: chaotic systems, NARMA and white noise."""

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

Array = NDArray[np.float64]


def standardised(series: Array) -> Array:
    """(time, channels) with mean 0 and deviation 1 in each channel."""
    return (series - series.mean(0)) / series.std(0)


def lorenz(steps: int, seed: int = 0, dt: float = 0.02) -> Array:
    """Lorenz-63 (steps, 3). Largest Lyapunov exponent 0.906."""

    def slope(_: float, s: Array) -> list[float]:
        return [10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]]

    times = dt * np.arange(steps + 1000)
    start = np.random.default_rng(seed).normal(size=3) + np.array([0, 0, 25])
    return standardised(
        solve_ivp(slope, times[[0, -1]], start, t_eval=times, rtol=1e-9, atol=1e-9).y.T[1000:]
    )


def mackey_glass(steps: int, seed: int = 0, delay: int = 17, fine: int = 10) -> Array:
    """dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x, one value a unit of time, (steps, 1).

    Fourth-order Runge-Kutta with steps of 1 / fine, the delayed value between two of them interpolated. The largest
    Lyapunov exponent is 0.006.
    """
    past, dt = delay * fine, 1 / fine
    total = (steps + 500) * fine
    x = np.empty(total + past + 1)
    x[: past + 1] = 1.2 + 0.1 * np.random.default_rng(seed).uniform(-1, 1)

    def slope(value: float, late: float) -> float:
        return 0.2 * late / (1 + late**10) - 0.1 * value

    for t in range(past, total + past):
        early, late = x[t - past], x[t - past + 1]
        middle = (early + late) / 2
        k1 = slope(x[t], early)
        k2 = slope(x[t] + dt / 2 * k1, middle)
        k3 = slope(x[t] + dt / 2 * k2, middle)
        k4 = slope(x[t] + dt * k3, late)
        x[t + 1] = x[t] + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return standardised(x[past + 500 * fine :: fine][:steps, None])


def kuramoto_sivashinsky(
    steps: int, seed: int = 0, length: float = 22.0, points: int = 32, dt: float = 0.25
) -> Array:
    """u_t = -u u_x - u_xx - u_xxxx, periodic with period 22, (steps, points). Largest Lyapunov exponent 0.043.

    Exponential time differencing of fourth order, its coefficients by contour integrals.
    """
    wave = 2 * np.pi / length * np.fft.rfftfreq(points, 1 / points)
    linear = wave**2 - wave**4
    full, half = np.exp(dt * linear), np.exp(dt * linear / 2)
    circle = np.exp(1j * np.pi * (np.arange(1, 33) - 0.5) / 32)
    z = dt * linear[:, None] + circle
    q = dt * np.mean((np.exp(z / 2) - 1) / z, 1).real
    f1 = dt * np.mean((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3, 1).real
    f2 = dt * np.mean((2 + z + np.exp(z) * (z - 2)) / z**3, 1).real
    f3 = dt * np.mean((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3, 1).real

    def advection(v: NDArray[np.complex128]) -> NDArray[np.complex128]:
        result: NDArray[np.complex128] = -0.5j * wave * np.fft.rfft(np.fft.irfft(v, points) ** 2)
        return result

    v = np.fft.rfft(0.1 * np.random.default_rng(seed).normal(size=points))
    v[0] = 0
    out = np.empty((steps, points))
    for t in range(-2000, steps):
        n = advection(v)
        a = half * v + q * n
        na = advection(a)
        b = half * v + q * na
        nb = advection(b)
        c = half * a + q * (2 * nb - n)
        v = full * v + f1 * n + 2 * f2 * (na + nb) + f3 * advection(c)
        if t >= 0:
            out[t] = np.fft.irfft(v, points)
    return standardised(out)


def narma(steps: int, order: int, seed: int = 0) -> tuple[Array, Array]:
    """Inputs and targets of NARMA-10 or NARMA-30, each (steps, 1)."""
    a, b, c, d = (0.3, 0.05, 1.5, 0.1) if order == 10 else (0.2, 0.04, 1.5, 0.001)
    u = np.random.default_rng(seed).uniform(0, 0.5, steps + 200)
    y = np.zeros(steps + 200)
    for t in range(order - 1, steps + 199):
        y[t + 1] = a * y[t] + b * y[t] * y[t - order + 1 : t + 1].sum() + c * u[t - order + 1] * u[t] + d
    return standardised(u[200:, None]), standardised(np.roll(y, -1)[200:, None])
