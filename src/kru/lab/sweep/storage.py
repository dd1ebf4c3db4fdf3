"""Where a sweep is stored: SQLite, a journal file, or PostgreSQL."""

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from kru.lab.run import RunError
from kru.lab.sweep.locks import FileLocks, Locks, PostgresLocks
from kru.training.files import lock_file, unlock_file

SQLITE, JOURNAL = ".db", ".journal"
VARIABLE = "KRU_STORAGE"
"""The environment variable that names a storage; other users can see arguments of a process, but not this."""
UNREADABLE = "a URL that cannot be read"
_SCHEME = re.compile(r"[a-z][a-z0-9+]+:", re.IGNORECASE)
PASSING = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
)
"""Errors of SQLite that the file is not to blame for."""
DATABASE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)


@dataclass(frozen=True)
class Store:
    """A place for a sweep, not opened yet: a path ending in .db or .journal, or a PostgreSQL URL."""

    where: str

    def __post_init__(self) -> None:
        # Messages never repeat what cannot be read: a part of it may be a password.
        expected = (
            f"storage: expected a path ending in {SQLITE} (SQLite, one process) or {JOURNAL} (several), or "
            "postgresql+psycopg://USER@HOST/DATABASE"
        )
        if self.is_server:
            try:
                url = make_url(self.where)
                dialect = url.get_dialect().name
            except ImportError as error:
                raise ValueError(f"storage: {error}") from error
            except (ArgumentError, ValueError):
                raise ValueError(f"{expected}, got {UNREADABLE}") from None
            if "@" in f"{url.username}{url.host}{url.database}":
                raise ValueError(
                    f"{expected}, got {UNREADABLE}: write @ as %40, / as %2F and : as %3A in a password"
                )
            if dialect == "postgresql":
                return
        elif self.where.endswith((SQLITE, JOURNAL)):
            return
        raise ValueError(f"{expected}, got {self}")

    def __str__(self) -> str:
        """For messages, without a password."""
        if not self.is_server:
            return UNREADABLE if "@" in self.where or _SCHEME.match(self.where) else self.where
        try:
            # Parameters may have a password too.
            return make_url(self.where).set(query={}).render_as_string()
        except (ArgumentError, ValueError):
            return UNREADABLE

    @property
    def is_server(self) -> bool:
        return "://" in self.where

    @property
    def one_process(self) -> bool:
        return not self.is_server and self.where.endswith(SQLITE)

    def exists(self) -> bool:
        """Whether a sweep may exist there; a server may always have one."""
        return self.is_server or Path(self.where).is_file()

    def locks(self) -> Locks:
        """The locks of what is kept here."""
        if not self.is_server:
            return FileLocks(Path(f"{self.where}.locks"))
        try:
            with self.errors():
                return PostgresLocks(self.where)
        except ImportError as error:
            raise ValueError(f"storage: {error}; expected such as postgresql+psycopg://...") from error

    @contextlib.contextmanager
    def open(self) -> Iterator[BaseStorage]:
        """Optuna's storage; made if there is none, which only one worker at a time may do."""
        if self.is_server:
            with _database(self.where) as storage:
                yield storage
            return
        path = Path(self.where)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.one_process:
            if not path.exists():
                _make_sqlite(path)
            with _database(f"sqlite:///{path}") as storage:
                yield storage
        else:
            backend = JournalFileBackend(self.where, lock_obj=JournalLock(path))
            try:
                journal = JournalStorage(backend)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"storage {self}: expected the journal of a sweep, got another file"
                ) from error
            yield journal

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the database as one line that says what to do."""
        try:
            yield
        except DATABASE_ERRORS as error:
            cause = error.__cause__ or error
            cause = getattr(cause, "orig", None) or cause
            reason = str(cause).strip().splitlines()[0]
            code = getattr(cause, "sqlite_errorcode", None)
            if code is not None and code & 0xFF not in PASSING:
                raise ValueError(f"storage {self}: {reason}; name another --storage") from error
            raise RunError(
                f"storage {self}: {reason}; finished trials are safe; run the same command to resume"
            ) from error


@contextlib.contextmanager
def _database(url: str) -> Iterator[RDBStorage]:
    # A connection that the server closed while a trial ran is replaced before it is used.
    storage = RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _make_sqlite(path: Path) -> None:
    """Make the tables in another file first: SQLite makes them one by one, and a process can be killed."""
    unfinished = path.with_name(path.name + ".tmp")
    for left in (unfinished, path.with_name(path.name + ".tmp-journal")):
        left.unlink(missing_ok=True)
    with _database(f"sqlite:///{unfinished}"):
        pass
    os.replace(unfinished, path)


class JournalLock(JournalFileOpenLock):
    """Lets one process at a time append to a journal.

    Optuna's own locks are files that a killed process leaves behind, and for which the others then wait half
    a minute. A line that a crash of the machine cut off is removed: nobody has read it, and it would spoil
    the next one.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        self._descriptor = lock_file(Path(f"{self._path}.locks") / "journal", wait=True)
        remove_cut_line(self._path)
        return True

    def release(self) -> None:
        assert self._descriptor is not None
        unlock_file(self._descriptor)
        self._descriptor = None


def remove_cut_line(path: Path) -> None:
    """Cut a file back to the end of its last whole line."""
    with open(path, "r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        kept = end
        while kept:
            stream.seek(kept - 1)
            if stream.read(1) == b"\n":
                break
            kept -= 1
        if kept < end:
            stream.truncate(kept)
