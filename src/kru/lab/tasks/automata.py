"""Finite automata whose states are to be tracked: four regular languages and the word problems of three groups."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kru.training.task import IGNORED

Table = NDArray[np.int64]


@dataclass(frozen=True)
class Automaton:
    """A finite automaton that starts in state 0 and says something in each state.

    Attributes:
        label: what tables and figures call it.
        phases: at step t a symbol is drawn uniformly from phases[t % len(phases)].
        move: (states, symbols): the next state.
        output: (states,): the class of each state, `IGNORED` where there is none.
    """

    label: str
    phases: tuple[range, ...]
    move: Table
    output: Table

    @property
    def symbols(self) -> int:
        return int(self.move.shape[1])

    @property
    def classes(self) -> int:
        return int(self.output.max()) + 1

    def run(self, symbols: Table) -> Table:
        """The class after each step of sequences of symbols (T, B), from the start."""
        state = np.zeros(symbols.shape[1], np.int64)
        states = np.empty_like(symbols)
        for t, symbol in enumerate(symbols):
            states[t] = state = self.move[state, symbol]
        outputs: Table = self.output[states]
        return outputs


def _table(values: Any) -> Table:
    return np.asarray(values, np.int64)


def parity() -> Automaton:
    """Whether the number of ones so far is odd."""
    return Automaton("Parity", (range(2),), _table([[0, 1], [1, 0]]), _table(range(2)))


def cycle_navigation(length: int = 5) -> Automaton:
    """The position on a cycle after steps back, none and forward."""
    places = np.arange(length)[:, None]
    return Automaton(
        f"Cycle navigation, {length} places",
        (range(3),),
        _table((places + np.array([-1, 0, 1])) % length),
        _table(range(length)),
    )


def even_pairs() -> Automaton:
    """Whether the number of pairs 01 and 10 so far is odd, which is whether the first and the last bit differ."""
    # State 0 is the start, 1 + 2 * first + last the others.
    move = _table([[1, 4]] + [[1 + 2 * first, 2 + 2 * first] for first in (0, 1) for _ in (0, 1)])
    return Automaton("Even pairs", (range(2),), move, _table([IGNORED, 0, 1, 1, 0]))


def modular_arithmetic(modulus: int = 5) -> Automaton:
    """The value of an expression of numbers, +, - and * without brackets, modulo 5, after each of its numbers.

    The product binds more strongly. Symbols 0 to modulus - 1 are the numbers, the next three +, - and *.
    """
    plus, minus, times = range(modulus, modulus + 3)
    # What a state knows: the sum of the terms before the last one, the last term, and the operator, if it comes last.
    numbers = range(modulus)
    known = [
        (total, term, last) for last in (None, plus, minus, times) for total in numbers for term in numbers
    ]
    start = known.index((0, 0, plus))
    known[0], known[start] = known[start], known[0]
    index = {state: place for place, state in enumerate(known)}

    def after(total: int, term: int, last: int | None, symbol: int) -> tuple[int, int, int | None]:
        if symbol >= modulus:
            return total, term, symbol
        if last == times:
            return total, term * symbol % modulus, None
        # An operator before a number ends the term before it.
        number = -symbol if last == minus else symbol
        return (total + term) % modulus, number % modulus, None

    symbols = range(modulus + 3)
    move = _table([[index[after(*state, symbol)] for symbol in symbols] for state in known])
    output = _table([(total + term) % modulus if last is None else IGNORED for total, term, last in known])
    phases = (range(modulus), range(modulus, modulus + 3))
    return Automaton(f"Modular arithmetic, modulo {modulus}", phases, move, output)


def group(name: str, elements: list[tuple[int, ...]]) -> Automaton:
    """The word problem of a group of permutations: the product of the elements so far, p q meaning p after q."""
    index = {element: place for place, element in enumerate(elements)}
    # The state is the product p so far, the symbol q: q p.
    move = _table([[index[tuple(q[i] for i in p)] for q in elements] for p in elements])
    return Automaton(f"Word problem of {name}", (range(len(elements)),), move, _table(range(len(elements))))


def symmetric(points: int) -> list[tuple[int, ...]]:
    """All permutations, the identity first."""
    return list(permutations(range(points)))


def alternating(points: int) -> list[tuple[int, ...]]:
    """The even permutations, the identity first."""
    return [p for p in symmetric(points) if not sum(a > b for i, a in enumerate(p) for b in p[i + 1 :]) % 2]


AUTOMATA: dict[str, Callable[[], Automaton]] = {
    "parity": parity,
    "cycle": cycle_navigation,
    "even-pairs": even_pairs,
    "arithmetic": modular_arithmetic,
    "s3": lambda: group("S3", symmetric(3)),
    "a5": lambda: group("A5", alternating(5)),
    "s5": lambda: group("S5", symmetric(5)),
}
"""The automata by the names that recipes give them."""


@cache
def find_automaton(name: str) -> Automaton:
    """The automaton of this name."""
    if name not in AUTOMATA:
        raise ValueError(f"automaton: expected one of {', '.join(AUTOMATA)}, got {name!r}")
    return AUTOMATA[name]()
