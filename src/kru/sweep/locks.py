"""Locks between the workers of a sweep, each of which ends with the worker that has it, however that ends.

They say who is alive. A worker holds the lock of its trial as long as it runs, so a trial that runs in the
study, but whose lock is free, has lost its worker: the next one takes it up at once. No clock is read, and
there is no time to wait for.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from kru.training.files import lock_file, unlock_file


class Locks(Protocol):
    """Locks by name."""

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Wait until no other worker is in here, and keep them out."""

    def take(self, name: str) -> bool:
        """Take a lock; whether it was free."""

    def give(self, name: str) -> None:
        """Give a lock back."""

    def check(self) -> None:
        """Raise if the locks that were taken may be lost."""

    def close(self) -> None:
        """Give all locks back."""


class FileLocks:
    """Locks on the files of a folder, on one machine or over NFS."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        descriptor = lock_file(self._folder / "alone", wait=True)
        assert descriptor is not None
        try:
            yield
        finally:
            unlock_file(descriptor)

    def take(self, name: str) -> bool:
        descriptor = lock_file(self._folder / name, wait=False)
        if descriptor is None:
            return False
        self._held[name] = descriptor
        return True

    def give(self, name: str) -> None:
        unlock_file(self._held.pop(name))

    def check(self) -> None:
        """The system takes no lock from a process that runs."""

    def close(self) -> None:
        for name in list(self._held):
            self.give(name)


class PostgresLocks:
    """Advisory locks of a PostgreSQL server: its own, for any number of machines.

    A session has them, and the server ends a session with its connection. A process that is killed closes it;
    of a machine that is gone the server hears nothing more and gives it up after a minute.
    """

    def __init__(self, url: str, study: str) -> None:
        self._study = study
        self._connection = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect()
        # The server asks a silent machine for a sign of life, by default only after two hours.
        for setting, value in (("idle", 30), ("interval", 10), ("count", 3)):
            self._connection.execute(text(f"SET tcp_keepalives_{setting} = {value}"))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self._call("pg_advisory_lock", "alone")
        try:
            yield
        finally:
            # Without the connection there is no lock either, and the first error is the one to tell.
            with contextlib.suppress(SQLAlchemyError):
                self.give("alone")

    def take(self, name: str) -> bool:
        return bool(self._call("pg_try_advisory_lock", name))

    def give(self, name: str) -> None:
        self._call("pg_advisory_unlock", name)

    def check(self) -> None:
        self._connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self._connection.close()

    def _call(self, function: str, name: str) -> object:
        # A lock is a number of 64 bits, in one database for everyone who uses it.
        digest = hashlib.sha256(f"kru sweep {self._study} {name}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        return self._connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar()
