"""What the services did, in one SQLite file that all of them write and that outlives each of them.

The effect of a widget and the note that somebody tried it are one transaction, so a service that is killed at any
instant has either done both or neither.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_SCHEMA = """
CREATE TABLE effects (widget TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE attempts (id INTEGER PRIMARY KEY, widget TEXT NOT NULL, service TEXT NOT NULL, at REAL NOT NULL,
                       is_repeat INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that reached a service and was written down.

    Attributes:
        widget: What was to be done.
        service: Who wrote it down.
        at: When, in seconds of ``time.monotonic()``, which is one clock for all processes of a machine.
        is_repeat: True if the widget had been done before, so that this attempt was refused.
    """

    widget: str
    service: str
    at: float
    is_repeat: bool


class Ledger:
    """The ledger as one process sees it; a context manager that closes its connection.

    Belongs to the thread that made it. Each call is one short transaction (well under a millisecond on a local disk)
    and no cancellation point.

    Args:
        path: A file that :meth:`create` has made.
    """

    def __init__(self, path: Path) -> None:
        # None: each transaction below begins and ends by name. 10 s: one writer waits for the other, it never gives up.
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
        # In WAL mode NORMAL survives the death of any process; only a power cut could lose the end of the log.
        self._connection.execute("PRAGMA synchronous = NORMAL")

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make an empty ledger at *path* and open it.

        Raises:
            sqlite3.OperationalError: There is a ledger at *path* already, or the place cannot be written.
        """
        ledger = cls(path)
        # Kept in the file, so every later connection has it: readers and a writer never wait for each other.
        try:
            ledger._connection.execute("PRAGMA journal_mode = WAL")
            ledger._connection.executescript(_SCHEMA)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def record(self, widget: str, service: str) -> bool:
        """Do *widget* unless it has been done, and note the attempt.

        Returns:
            True if this call did it; False if it is a repeat and had no effect.
        """
        with self._connection:
            # IMMEDIATE: two services that begin together queue here; neither fails on its way from reading to writing.
            self._connection.execute("BEGIN IMMEDIATE")
            is_new = self._connection.execute("INSERT OR IGNORE INTO effects VALUES (?)", (widget,)).rowcount == 1
            self._connection.execute(
                "INSERT INTO attempts (widget, service, at, is_repeat) VALUES (?, ?, ?, ?)",
                (widget, service, time.monotonic(), not is_new),
            )
        return is_new

    def effects(self) -> frozenset[str]:
        """Return every widget that has been done."""
        return frozenset(widget for (widget,) in self._connection.execute("SELECT widget FROM effects"))

    def attempts(self) -> list[Attempt]:
        """Return every attempt, in the order in which they were written."""
        rows = self._connection.execute("SELECT widget, service, at, is_repeat FROM attempts ORDER BY id")
        return [Attempt(widget, service, at, bool(is_repeat)) for widget, service, at, is_repeat in rows]

    def close(self) -> None:
        """Close the connection; may be repeated."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
