"""Locks between the workers of a sweep, each of which ends with the worker that has it, however that ends.

They say who is alive. A worker holds the lock of its trial as long as it runs, so a trial that runs in the
sweep, but whose lock is free, has lost its worker: the next one takes it up at once. No clock is read, and
there is no time to wait for.
"""

import contextlib
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from kru.lab.run import RunError
from kru.training.files import lock_file, unlock_file

ALONE = "alone"
RETRIES, RETRY_SECONDS = 30, 2.0


class LockLostError(RunError):
    """A lock that this worker had may be another worker's now."""


class Locks(Protocol):
    """Locks by name, the same for all sweeps in a storage."""

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Wait until no other worker is in here, and keep them out."""

    def take(self, name: str) -> bool:
        """Take a lock; whether it was free."""

    def give(self, name: str) -> None:
        """Give a lock back."""

    def check(self) -> None:
        """Raise `LockLostError` if another worker may have a lock that was taken here."""

    def close(self) -> None:
        """Give all locks back."""


class FileLocks:
    """Locks on the files of a folder, on one machine or over NFS."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        descriptor = lock_file(self._folder / ALONE, wait=True)
        assert descriptor is not None
        try:
            yield
        finally:
            unlock_file(descriptor)

    def take(self, name: str) -> bool:
        # A sweep may have any name.
        descriptor = lock_file(self._folder / quote(name, safe=""), wait=False)
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
    of a machine that is gone the server hears nothing more and gives it up after a minute. After a breakdown
    of the network or a restart of the server, a worker takes its locks again, if nobody was faster.
    """

    def __init__(self, url: str) -> None:
        self._held: set[str] = set()
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._connection = self._connect()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self._run("pg_advisory_lock", ALONE)
        self._held.add(ALONE)
        try:
            yield
        finally:
            self.give(ALONE)

    def take(self, name: str) -> bool:
        taken = bool(self._run("pg_try_advisory_lock", name))
        if taken:
            self._held.add(name)
        return taken

    def give(self, name: str) -> None:
        # Without the connection, the server has taken the lock back already.
        self._held.discard(name)
        with contextlib.suppress(SQLAlchemyError):
            self._call("pg_advisory_unlock", name)

    def check(self) -> None:
        self._run("pg_backend_pid")

    def close(self) -> None:
        self._connection.close()

    def _run(self, function: str, name: str = "") -> object:
        """Call a function of the server, if need be over a new connection."""
        try:
            return self._call(function, name)
        except SQLAlchemyError:
            if not self._connection.invalidated:
                raise
        self._connection = self._reconnect()
        # What was to be done alone has been interrupted, and can't be gone on with.
        if ALONE in self._held or not all(self._call("pg_try_advisory_lock", held) for held in self._held):
            self._held.clear()
            self._call("pg_advisory_unlock_all")
            raise LockLostError("the connection to the storage was lost; run the same command to resume")
        return self._call(function, name)

    def _call(self, function: str, name: str = "") -> object:
        if not name:
            return self._connection.execute(text(f"SELECT {function}()")).scalar()
        # A lock is a number of 64 bits, in one database for everyone who uses it.
        digest = hashlib.sha256(f"kru sweep {name}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        return self._connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar()

    def _reconnect(self) -> Connection:
        """A new connection, as soon as the server is back; it is waited for a minute."""
        self._connection.close()
        for _ in range(RETRIES):
            with contextlib.suppress(SQLAlchemyError):
                return self._connect()
            time.sleep(RETRY_SECONDS)
        return self._connect()

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        # The server asks a silent machine for a sign of life, by default only after two hours.
        for setting, value in (("idle", 30), ("interval", 10), ("count", 3)):
            connection.execute(text(f"SET tcp_keepalives_{setting} = {value}"))
        return connection
