"""Stopping between two steps on Ctrl-C or a request to terminate."""

import signal
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
    """

    def __init__(self) -> None:
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
        if self._received:
            raise Interrupted(self._received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
