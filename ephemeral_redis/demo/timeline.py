"""What happened to the services and the ladder, in order, on the clock that all processes of a machine share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED = "service.killed:primary"
RESTARTED = "service.restarted:primary"
LISTENING = "service.listening:primary"
RESTORED = "failover.restored:pri1"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened.

    Attributes:
        name: What, named as signals are; the ladder's own entries are its signals.
        at: When, in seconds of ``time.monotonic()``.
        detail: What else is known, for people.
    """

    name: str
    at: float
    detail: str = ""


@dataclass
class Timeline:
    """The entries of one run, oldest first; for one thread.

    Attributes:
        on_entry: Called with each entry as it is noted.
        entries: All so far.
    """

    on_entry: Callable[[Entry], None]
    entries: list[Entry] = field(default_factory=list[Entry])

    def note(self, name: str, detail: str = "", *, at: float | None = None) -> None:
        """Add an entry, of now or of the time it tells itself."""
        entry = Entry(name, time.monotonic() if at is None else at, detail)
        self.entries.append(entry)
        self.on_entry(entry)
