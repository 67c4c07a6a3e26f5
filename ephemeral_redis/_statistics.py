"""What the bus has done so far, as ``sink.statistics().bus`` tells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BusStatistics:
    """Counters of one sink's side of the bus.

    Attributes:
        is_degraded: Whether the bus cannot be reached now.
        degraded_seconds: How long it could not be, in all.
        reconnects: How often it was reached again.
        last_error: Why it was lost the last time; None if it never was.
        outbox: Signals that wait to be sent.
        oldest_age: Age of the oldest of them, seconds; 0 if none waits.
        sent: Signals the server has acknowledged.
        applied: Of these, those it took at the first try or a later one.
        duplicate: Of these, those of batches it had already: an answer was lost.
        stale: Signals not sent, because they were older than the bus keeps.
        dropped: Signals not sent, because the outbox was full or the server refused them.
        batches: Batches acknowledged.
        round_trip_p50: Median of the last 512 of them, seconds; None before the first.
        round_trip_p99: 99th percentile of the same.
        remote: Signals of other sinks that were received.
        lag: Age of the last of them when it was received, seconds.
        repeated: Signals received twice, and passed on once.
        gaps: How often signals of others never came.
        missed: How many never came: trimmed, lost by the server, or dropped by their senders.
        undecodable: Entries that could not be read.
        foreign: Entries and rows that a newer version of the library wrote, passed over.
        reports: Ends of calls that the health table has counted.
        reports_dropped: Ends of calls that were never told, because too many waited.
        transitions: Changes of health that this worker made for the fleet.
    """

    is_degraded: bool
    degraded_seconds: float
    reconnects: int
    last_error: str | None
    outbox: int
    oldest_age: float
    sent: int
    applied: int
    duplicate: int
    stale: int
    dropped: int
    batches: int
    round_trip_p50: float | None
    round_trip_p99: float | None
    remote: int
    lag: float
    repeated: int
    gaps: int
    missed: int
    undecodable: int
    foreign: int
    reports: int
    reports_dropped: int
    transitions: int


@dataclass(slots=True)
class Tally:
    """The counters as they run; written by the portal's thread, and by forks anew."""

    reconnects: int = 0
    last_error: str | None = None
    applied: int = 0
    duplicate: int = 0
    refused: int = 0
    batches: int = 0
    remote: int = 0
    lag: float = 0.0
    repeated: int = 0
    gaps: int = 0
    missed: int = 0
    undecodable: int = 0
    foreign: int = 0
    reports: int = 0
    transitions: int = 0
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=512))

    def percentile(self, share: float) -> float | None:
        """Return the round trip that *share* of the last ones do not exceed."""
        ordered = sorted(self.round_trips)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None
