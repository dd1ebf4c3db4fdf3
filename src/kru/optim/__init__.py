"""Optimisers, the unitary penalty, and parameter counts."""

from kru.optim.optimizer import optimizer
from kru.optim.parameters import parameter_count
from kru.optim.penalty import unitary_penalty

__all__ = ["optimizer", "parameter_count", "unitary_penalty"]
