"""The symbols that a model knows."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Vocabulary:
    """Symbols in order; number `len(symbols)` stands for every symbol that was not in the training data.

    >>> vocabulary = Vocabulary.of("banana")
    >>> vocabulary.symbols, vocabulary.encode("bad").tolist()
    (('a', 'b', 'n'), [1, 0, 3])
    """

    symbols: tuple[Hashable, ...]

    @staticmethod
    def of(symbols: Iterable[Hashable]) -> "Vocabulary":
        """The different ones among the symbols: integers first, then strings, sorted."""
        return Vocabulary(tuple(sorted(set(symbols), key=lambda s: (isinstance(s, str), s))))

    @property
    def size(self) -> int:
        """The number of codes, one of them for unknown symbols."""
        return len(self.symbols) + 1

    def plain(self) -> list[int | str]:
        """The symbols in the order of their numbers, as JSON can have them."""
        return [symbol if isinstance(symbol, int) else str(symbol) for symbol in self.symbols]

    def encode(self, sequence: Iterable[Hashable]) -> NDArray[np.int64]:
        """The numbers of symbols."""
        unknown = len(self.symbols)
        return np.array([self._numbers.get(symbol, unknown) for symbol in sequence], dtype=np.int64)

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {symbol: number for number, symbol in enumerate(self.symbols)}


def pad(sequences: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Symbols (T, B), zero beyond the ends, and lengths (B,)."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    symbols = np.zeros((int(lengths.max()), len(sequences)), dtype=np.int64)
    for column, sequence in enumerate(sequences):
        symbols[: len(sequence), column] = sequence
    return symbols, lengths
