"""Predict the Lorenz system in free run with an echo state network, and draw it: python examples/lorenz.py"""

import argparse
import time

import numpy as np
from matplotlib import pyplot
from scipy.integrate import solve_ivp

from kru.reservoir import EchoStateForecaster

STEP = 0.02
LYAPUNOV = 0.906
"""The largest Lyapunov exponent: errors grow by e in 1 / 0.906 units of time."""


def lorenz(steps: int) -> np.ndarray:
    """(3, steps): a trajectory on the attractor."""

    def slope(_: float, s: np.ndarray) -> list[float]:
        return [10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]]

    times = STEP * np.arange(-500, steps)
    solution = solve_ivp(slope, times[[0, -1]], [1.0, 1.0, 25.0], t_eval=times, rtol=1e-10, atol=1e-10)
    return solution.y[:, 500:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1200, help="length of the forecast")
    parser.add_argument("--out", default="lorenz.png")
    arguments = parser.parse_args()
    train, steps = 8000, arguments.steps
    series = lorenz(train + steps)
    start = time.perf_counter()
    model = EchoStateForecaster(
        arguments.units,
        spectral_radius=0.5,
        input_scaling=0.2,
        ridge=1e-14 if arguments.units >= 1024 else 1e-7,
    )
    model.fit(series[:, :train])
    fitted = time.perf_counter()
    forecast, truth = model.predict(steps), series[:, train:]
    done = time.perf_counter()
    error = np.sqrt(((forecast - truth) ** 2).mean(0) / truth.var(1).mean())
    valid = int((error > 0.4).argmax()) if (error > 0.4).any() else steps
    print(
        f"{arguments.units} units: fitted to {train} steps in {fitted - start:.2f} s, {steps} steps predicted in "
        f"{done - fitted:.2f} s; valid for {valid * STEP * LYAPUNOV:.1f} Lyapunov times"
    )
    figure = pyplot.figure(figsize=(10, 4))
    left = figure.add_subplot(1, 2, 1, projection="3d")
    for values, name in ((truth, "Lorenz system"), (forecast, "free run of the reservoir")):
        left.plot(*values, linewidth=0.7, label=name)
    left.legend(loc="upper left", fontsize=8)
    right = figure.add_subplot(1, 2, 2)
    times = STEP * LYAPUNOV * np.arange(steps)
    for values in (truth, forecast):
        right.plot(times, values[0], linewidth=1)
    right.axvline(valid * STEP * LYAPUNOV, color="0.6", linestyle="--", linewidth=1)
    right.set(xlabel="time since the last known value, in Lyapunov times", ylabel="x")
    figure.tight_layout()
    figure.savefig(arguments.out, dpi=120)
    print(f"drawn to {arguments.out}")


if __name__ == "__main__":
    main()
