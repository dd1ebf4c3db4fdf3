"""The problems that reservoirs are compared on: what is learnt, and the score on validation or test data."""

import time
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import series
import torch
from reservoir_contestants import Contestant
from series import Array

from kru.reservoir import Linear, NormalEquations, TriangularEquations

WASHOUT = 100


class Score(NamedTuple):
    """The score, and the CPU seconds of running the reservoir and fitting, and of predicting."""

    value: float
    fit_seconds: float
    predict_seconds: float


class Problem(Protocol):
    """What a search and a test need. `better` is 1 where more is better, -1 where less is."""

    better: int

    @property
    def inputs(self) -> int: ...

    def scores(
        self, contestant: Contestant, strengths: tuple[float, ...], seed: int, test: bool
    ) -> list[Score]:
        """For each strength of the regularisation."""
        ...


def read_outs(states: Array, x: Array, y: Array, strengths: tuple[float, ...]) -> list[Linear]:
    """Ridge regression of y on states and inputs, for each strength."""
    features = np.concatenate([states, x], 1)[WASHOUT:]
    equations = TriangularEquations(features.shape[1], y.shape[1])
    equations.add(torch.from_numpy(features), torch.from_numpy(y[WASHOUT:]))
    return [equations.solve(strength) for strength in strengths]


def apply(linear: Linear, state: Array, x: Array) -> Array:
    found: Array = linear(torch.from_numpy(np.concatenate([state, x], -1))).numpy()
    return found


@dataclass(frozen=True)
class Regression:
    """NRMSE of y from x one step after the other."""

    x: Array
    y: Array
    train: int
    hold: int
    better: int = -1

    @property
    def inputs(self) -> int:
        return self.x.shape[1]

    def scores(
        self, contestant: Contestant, strengths: tuple[float, ...], seed: int, test: bool
    ) -> list[Score]:
        first = self.train + (self.hold if test else 0)
        part = slice(first, first + self.hold)
        start = time.thread_time()
        states = contestant.run(self.x[: self.train])
        fitted = read_outs(states, self.x[: self.train], self.y[: self.train], strengths)
        middle = time.thread_time()
        states = contestant.run(self.x[part.start - WASHOUT : part.stop])[WASHOUT:]
        out = []
        for linear in fitted:
            error = apply(linear, states, self.x[part]) - self.y[part]
            nrmse = float(np.sqrt((error**2).mean() / self.y[part].var()))
            out.append(Score(nrmse, middle - start, time.thread_time() - middle))
        return out


@dataclass(frozen=True)
class FreeRun:
    """Valid prediction time: Lyapunov times until the error of a free run passes 0.4 deviations."""

    x: Array
    train: int
    starts: int
    spacing: int
    horizon: int
    unit: float
    better: int = 1

    @property
    def inputs(self) -> int:
        return self.x.shape[1]

    def scores(
        self, contestant: Contestant, strengths: tuple[float, ...], seed: int, test: bool
    ) -> list[Score]:
        x, first = self.x, self.train + (self.starts * self.spacing if test else 0)
        start = time.thread_time()
        states = contestant.run(x[: self.train])
        fitted = read_outs(states, x[: self.train], x[1 : self.train + 1], strengths)
        fit_seconds = time.thread_time() - start
        out = []
        for linear in fitted:
            begun, times = time.thread_time(), []
            for k in range(self.starts):
                begin = first + k * self.spacing
                state, row = contestant.run(x[begin - 200 : begin + 1])[-1], x[begin]
                for t in range(self.horizon):
                    row = apply(linear, state, row)
                    error = np.sqrt(((row - x[begin + 1 + t]) ** 2).mean())
                    if not error <= 0.4:
                        break
                    state = contestant.step(row)
                times.append(t * self.unit)
            out.append(Score(float(np.mean(times)), fit_seconds, time.thread_time() - begun))
        return out


@dataclass(frozen=True)
class Capacity:
    """Memory capacity: the sum over delays of the squared correlation of the delayed input with its read-out."""

    units: int
    better: int = 1
    inputs: int = 1

    def scores(
        self, contestant: Contestant, strengths: tuple[float, ...], seed: int, test: bool
    ) -> list[Score]:
        units, hold = self.units, 1000
        train, skip = 10 * units + 1000, 2 * units
        u = np.random.default_rng(seed + (1000 if test else 2000)).uniform(-1, 1, (train + hold, 1))
        targets = np.stack([np.roll(u[:, 0], delay) for delay in range(1, int(1.5 * units))], 1)
        start = time.thread_time()
        states = contestant.run(u)
        equations = NormalEquations(units, targets.shape[1])
        equations.add(torch.from_numpy(states[skip:train]), torch.from_numpy(targets[skip:train]))
        size, out = float(equations.gram.diagonal().mean()), []
        for strength in strengths:
            linear = equations.solve(strength * size)
            got, true = linear(torch.from_numpy(states[train:])).numpy(), targets[train:]
            got, true = got - got.mean(0), true - true.mean(0)
            squares = (got * true).mean(0) ** 2 / (got.var(0) * true.var(0) + 1e-300)
            # Squared correlations of noise are 1 / hold on average, which is not memory.
            capacity = float(np.maximum(squares - 1 / hold, 0).sum())
            out.append(Score(capacity, time.thread_time() - start, 0.0))
        return out


NAMES = ("NARMA-10", "NARMA-30", "Mackey-Glass", "Lorenz-63", "Kuramoto-Sivashinsky", "memory capacity")


@cache
def problem(name: str, units: int) -> Problem:
    if name.startswith("NARMA"):
        return Regression(*series.narma(5000, int(name[6:])), train=3000, hold=1000)
    if name == "Mackey-Glass":
        return FreeRun(series.mackey_glass(16000), 3000, 3, 2100, 2000, 0.006)
    if name == "Lorenz-63":
        return FreeRun(series.lorenz(12000), 4000, 4, 950, 940, 0.02 * 0.906)
    if name == "Kuramoto-Sivashinsky":
        return FreeRun(series.kuramoto_sivashinsky(10000), 5000, 3, 800, 700, 0.25 * 0.043)
    return Capacity(units)
