"""Stopping between two steps on Ctrl-C or a request to terminate."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):  # noqa: N818  (not an error)
    """Training was asked to stop; `signal` says how."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class Interruptible:
    """While entered, the first SIGINT or SIGTERM is only noted, for `check` to raise at a good moment.

    A second one acts at once, as usual.

    Args:
        agree: for one of several processes: maps the signal that came here, 0 for none, to the one that came
            anywhere, so that all stop between the same two steps. Further signals are then only noted too: a
            launcher sends on what the terminal has sent already.
    """

    def __init__(self, agree: Callable[[int], int] | None = None) -> None:
        self._agree = agree
        self._received = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruptible":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:
            pass  # not the main thread: signals don't come here
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._restore()

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        received = self._agree(self._received) if self._agree else self._received
        if received:
            raise Interrupted(received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        if self._agree is None:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
