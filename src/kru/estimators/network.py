"""The network of an estimator: its settings, its size, and how it is built."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kru.linalg.factors import choose_factors, splits
from kru.nn.kinds import find_kind, model_settings
from kru.nn.model import SequenceModel, Sizes, build_model

READOUTS = ("mean", "last")
FACTORED = ("kru", "kru-lstm", "kru-gru")


@dataclass(frozen=True)
class NetworkSettings:
    """Everything that decides the shapes of a network's weights."""

    kind: str
    units: int
    factors: tuple[int, ...]
    """none: the kind's default"""
    layers: int
    bidirectional: bool
    readout: str
    """mean or last; all for one output per step"""
    inputs: int
    outputs: int
    symbols: bool
    dropout: float = 0.0

    def build(self) -> SequenceModel:
        """The network, with initial weights from torch's global generator."""
        own: dict[str, Any] = {"factors": tuple(self.factors)} if self.factors else {}
        config = model_settings(
            self.kind,
            self.units,
            num_layers=self.layers,
            bidirectional=self.bidirectional,
            readout=self.readout,
            dropout=self.dropout,
            **own,
        )
        return build_model(config, Sizes(self.inputs, self.outputs, self.readout != "all", self.symbols))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights, without memory for any."""
        return {name: tuple(tensor.shape) for name, tensor in self._without_memory().state_dict().items()}

    def parameters(self) -> int:
        """The number of parameters."""
        return count_parameters(self._without_memory())

    def _without_memory(self) -> SequenceModel:
        # Sizes that cannot be split well are remarked upon when a network is really built.
        with torch.device("meta"), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.build()


def choose_settings(
    *,
    kind: str,
    units: int | None,
    factors: Any,
    max_parameters: int | None,
    **rest: Any,
) -> NetworkSettings:
    """The settings of a network within a budget.

    Without `max_parameters` they are what was asked for. With it, `units` given: the factors with the most entries
    whose network stays within the budget. `units` None: the most units, a multiple of 8, whose smallest factors do.
    """
    find_kind(kind)
    if factors is not None and len(tuple(factors)) == 0:
        raise ValueError("factors: expected at least one size, got none")
    chosen = () if factors is None else tuple(factors)
    if max_parameters is None or (chosen and units is not None):
        if units is None:
            raise ValueError("units: expected a number, or None with max_parameters, got None")
        settings = NetworkSettings(kind, units, chosen, **rest)
        if max_parameters is not None:
            _expect_within(settings, max_parameters)
        return settings
    if units is None:
        if chosen:
            raise ValueError(f"factors: expected None where units is None, got {chosen}")
        return _most_units(kind, max_parameters, rest)
    smallest = NetworkSettings(kind, units, (), **rest)
    _expect_within(smallest, max_parameters)
    if kind not in FACTORED:
        return smallest
    by_size = sorted(splits(units), key=lambda split: sum(n * n for n in split), reverse=True)
    for split in by_size:
        settings = NetworkSettings(kind, units, split, **rest)
        if settings.parameters() <= max_parameters:
            return settings
    return smallest


def _most_units(kind: str, max_parameters: int, rest: dict[str, Any]) -> NetworkSettings:
    def network(units: int) -> NetworkSettings:
        # Prime factors of an unlucky number can be large: powers of two times small numbers cannot.
        factors = choose_factors(units, max_factor=8) if kind in FACTORED else ()
        return NetworkSettings(kind, units, factors, **rest)

    def sizes(limit: int) -> list[int]:
        return [n for n in range(8, limit + 1, 8) if max(_primes(n)) <= 7]

    fitting = [n for n in sizes(2048) if n * max(1, rest["inputs"]) <= max_parameters]
    for units in reversed(fitting):
        settings = network(units)
        if settings.parameters() <= max_parameters:
            return settings
    least = network(8).parameters()
    raise ValueError(f"max_parameters: expected at least {least} for 8 units of {kind}, got {max_parameters}")


def _primes(number: int) -> tuple[int, ...]:
    return choose_factors(number)


def _expect_within(settings: NetworkSettings, max_parameters: int) -> None:
    least = settings.parameters()
    if least > max_parameters:
        raise ValueError(
            f"max_parameters: expected at least {least} for {settings.units} units of {settings.kind} "
            f"with {settings.inputs} inputs, got {max_parameters}"
        )


def count_parameters(network: nn.Module) -> int:
    """The number of parameters of a network."""
    return sum(parameter.numel() for parameter in network.parameters())
