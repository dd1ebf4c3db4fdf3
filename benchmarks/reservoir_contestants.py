"""The reservoirs that are compared, behind one interface, and the settings that are searched."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from reservoirpy.nodes import Reservoir as Peer
from series import Array

from kru.reservoir import Reservoir, Stepper


@dataclass(frozen=True)
class Settings:
    radius: float
    scaling: float
    leak: float
    bias: float
    connectivity: float = 1.0


def draw_settings(count: int, seed: int = 0) -> list[Settings]:
    """Random settings, the same for all contestants. More of them begin with the same ones."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(count):
        radius, scaling, leak, bias = rng.uniform(0.1, 1.1), rng.uniform(-1.5, 0.3), *rng.uniform(0.2, 1.0, 2)
        out.append(
            Settings(
                radius=round(float(radius), 3),
                scaling=round(float(10**scaling), 3),
                leak=1.0 if k % 2 else round(float(leak), 3),
                bias=round(float(bias), 3),
                connectivity=1.0 if k % 3 else 0.1,
            )
        )
    return out


class Contestant(Protocol):
    """A reservoir: states (T, S) of inputs (T, D) from a zero state, and one step after them."""

    def run(self, x: Array) -> Array: ...

    def step(self, x: Array) -> Array: ...


class Ours:
    def __init__(self, inputs: int, units: int, settings: Settings, seed: int) -> None:
        self.reservoir = Reservoir(
            inputs,
            units,
            spectral_radius=settings.radius,
            leak=settings.leak,
            input_scaling=settings.scaling,
            input_connectivity=settings.connectivity,
            bias_scaling=settings.bias,
            seed=seed,
            dtype=torch.float64,
        )
        self.stepper: Any = None

    def run(self, x: Array) -> Array:
        states, state = self.reservoir(torch.from_numpy(x).unsqueeze(1))
        self.stepper = Stepper(self.reservoir, state)
        found: Array = states[:, 0].numpy()
        return found

    def step(self, x: Array) -> Array:
        found: Array = self.stepper.step(torch.from_numpy(x).unsqueeze(0))[0].numpy()
        return found


class Theirs:
    """ReservoirPy's, its recurrent matrix as it comes: sparse, one entry in ten."""

    def __init__(self, inputs: int, units: int, settings: Settings, seed: int) -> None:
        self.reservoir = Peer(
            units,
            lr=settings.leak,
            sr=settings.radius,
            input_scaling=settings.scaling,
            input_connectivity=settings.connectivity,
            bias=settings.bias * np.random.default_rng(seed).uniform(-1, 1, units),
            seed=seed,
        )

    def run(self, x: Array) -> Array:
        if self.reservoir.initialized:
            self.reservoir.reset()
        found: Array = self.reservoir.run(x)
        return found

    def step(self, x: Array) -> Array:
        found: Array = self.reservoir.step(x)
        return found


CONTESTANTS: dict[str, Callable[[int, int, Settings, int], Contestant]] = {"kru": Ours, "reservoirpy": Theirs}
