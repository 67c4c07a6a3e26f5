"""Follows the streams: the changes of health, and the signals of other sinks. Lives on the portal's thread."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, cast, get_args

import anyio

from ephemeral import matches_pattern
from ephemeral.abc import HealthNews, NewsKind, Positions, SharedRecord

from . import _codec
from ._client import BLOCK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ephemeral.abc import Pattern, SignalReceiver, SignalRecord

    from ._clock import BusClock
    from ._mirror import Mirror
    from ._scripts import Calls, Snapshot
    from ._statistics import Tally

FIRST = b"0-0"
"""Before every entry of a stream."""

_KINDS = frozenset(kind for part in get_args(NewsKind) for kind in (get_args(part) or (part,)))
COMPARE_SECONDS = 5.0
"""Seconds after which the whole table is read again; between two reads of the stream, so up to BLOCK_SECONDS later."""

PACE = 0.002
"""Seconds between a read that brought little and the next one."""

REWIND_MILLISECONDS = 15_000
"""How far to go back on another server: two masters may stand beside each other for ten seconds."""

LOG_SECONDS = 10.0
"""Seconds between two warnings of signals that never came."""

_MAX_ENTRIES = 128
_log = logging.getLogger("ephemeral")


def entries_of(reply: Any) -> Iterator[tuple[bytes, bytes, dict[bytes, bytes]]]:
    """Yield (stream, id, fields) of an XREAD reply, in whichever of its shapes this client and protocol give it."""
    streams: Any = reply.items() if isinstance(reply, dict) else reply or ()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  whatever redis-py made of it
    for stream, entries in streams:
        # RESP3 wraps the entries of a stream once more.
        nested = len(entries) == 1 and entries[0] and isinstance(entries[0][0], list | tuple)
        for entry_id, fields in entries[0] if nested else entries:
            flat: Any = fields
            yield stream, entry_id, flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))  # pyright: ignore[reportUnknownVariableType]  as above


async def last_id(client: Any, stream: bytes) -> bytes:
    """Return the id of the newest entry of *stream*; `FIRST` if it has none."""
    newest = await client.xrevrange(stream, count=1)
    return newest[0][0] if newest else FIRST


def is_before(one: bytes, other: bytes) -> bool:
    """Whether id *one* comes before id *other*."""
    return _parts(one) < _parts(other)


class ControlReader:
    """Follows the health table.

    Args:
        stream: Its key.
        mirror: Is told.
        tally: Counts.
        origin: This worker.
    """

    def __init__(self, stream: bytes, mirror: Mirror, tally: Tally, origin: str) -> None:
        self._stream = stream
        self._mirror = mirror
        self._tally = tally
        self._origin = origin
        self._cursor: bytes | None = None

    async def catch_up(self, client: Any, snapshot: Snapshot) -> dict[str, SharedRecord]:
        """Hear what was missed since the last session, entry by entry where the stream still has it.

        Returns the rows of the snapshot; the mirror may know newer ones, if the server lost its data.
        """
        await self._hear_until(client, snapshot)
        rows: dict[str, SharedRecord] = {}
        for processor, value in snapshot.rows.items():
            try:
                row = _codec.unpack_row(processor, value)
            except _codec.UndecodableError as error:
                _note(self._tally, error)
                row = _codec.known_row(processor, value)
            rows.update({processor: row} if row is not None else {})
        return rows

    async def _hear_until(self, client: Any, snapshot: Snapshot) -> None:
        if self._cursor is None:
            self._cursor = snapshot.control_id
        elif is_before(snapshot.control_id, self._cursor):
            # The server knows less than was read: it lost its data, or a replica took over.
            self._cursor = FIRST
        if is_before(self._cursor, snapshot.control_id):
            for entry_id, fields in await client.xrange(self._stream, min=b"(" + self._cursor):
                self._hear(entry_id, fields)

    async def run(self, client: Any, calls: Calls) -> None:
        """Follow for ever, and put back by *calls* what the server lost; raises when the connection ends."""
        compare_at = time.monotonic() + COMPARE_SECONDS
        while True:
            reply = await client.xread(
                {self._stream: self._cursor}, count=_MAX_ENTRIES, block=int(BLOCK_SECONDS * 1000)
            )
            for _, entry_id, fields in entries_of(reply):
                self._hear(entry_id, fields)
            if not reply:
                self._mirror.take_answers()
            await self._mirror.heal_older(calls)
            if time.monotonic() >= compare_at:
                await self._compare(calls)
                compare_at = time.monotonic() + COMPARE_SECONDS

    async def _compare(self, calls: Calls) -> None:
        """Compare the table with what is known: an eviction policy throws rows and entries away without a word."""
        snapshot = await calls.snapshot()
        await self._hear_until(calls.client, snapshot)
        found = {processor: _codec.known_row(processor, value) for processor, value in snapshot.rows.items()}
        rows = {processor: row for processor, row in found.items() if row is not None}
        for processor in tuple(self._mirror.rows):
            await self._mirror.heal(calls, processor, rows.get(processor))
        self._mirror.compared(rows)

    def _hear(self, entry_id: bytes, fields: Mapping[bytes, bytes]) -> None:
        self._cursor = entry_id
        try:
            news = news_of(fields)
        except Exception as error:  # noqa: BLE001  whatever anybody wrote there, the reader goes on
            _note(self._tally, error)
            if not isinstance(error, _codec.NewerError) or (newer := _newer_news(fields)) is None:
                return
            news = newer
        if news.origin == self._origin and news.row is not None:
            self._tally.transitions += 1
        self._mirror.hear(news)


class SignalReader:
    """Follows the signals of other sinks.

    Args:
        streams: Keys of the streams to follow.
        receiver: Gets the signals.
        clock: Dates them.
        tally: Counts.
        origin: This sink, whose own signals are passed over.
        mirror: Which names are wanted.
    """

    def __init__(
        self,
        streams: list[bytes],
        receiver: SignalReceiver,
        clock: BusClock,
        tally: Tally,
        *,
        origin: str,
        mirror: Pattern,
    ) -> None:
        self._receiver = receiver
        self._clock = clock
        self._tally = tally
        self._origin = origin
        self._mirror = None if mirror == "*" else mirror
        self._cursors: dict[Any, bytes | None] = dict.fromkeys(streams)
        self._joined_at: dict[Any, bytes] = {}
        self._positions = {stream: Positions() for stream in streams}
        self._began_at: float | None = None
        # Where a stream is read for the second time, until which entry.
        self._again_until: dict[Any, bytes] = {}
        self._missed_logged = 0
        self._log_again_at = 0.0

    async def catch_up(self, client: Any) -> None:
        """Find where to read on: where the last session ended, at first at the end of the streams."""
        if self._began_at is None:
            self._began_at = self._receiver.now()
        for stream, cursor in self._cursors.items():
            newest = await last_id(client, stream)
            if cursor is None:
                self._cursors[stream] = self._joined_at[stream] = newest
            elif is_before(newest, cursor):
                # The server knows less than was read. What comes again is told by its position.
                self._cursors[stream], self._again_until[stream] = FIRST, cursor

    def rewind(self) -> None:
        """Read again what was new of late, for the server is another one: it may have what the last one never had.

        What comes again is told by its position. What was raised before this sink joined stays unread.
        """
        for stream, cursor in self._cursors.items():
            if cursor is not None:
                back = b"%d-0" % max(0, _parts(cursor)[0] - REWIND_MILLISECONDS)
                self._cursors[stream] = max(back, self._joined_at[stream], key=_parts)

    async def run(self, client: Any) -> None:
        """Follow for ever; raises when the connection ends."""
        while self._cursors:
            reply = await client.xread(self._cursors, count=_MAX_ENTRIES, block=int(BLOCK_SECONDS * 1000))
            shift = self._receiver.now() - self._clock.now()
            records: list[SignalRecord] = []
            for stream, entry_id, fields in entries_of(reply):
                self._cursors[stream] = entry_id
                records += self._read(stream, entry_id, fields, shift)
            if records:
                self._tally.remote += len(records)
                self._tally.lag = max(0.0, self._receiver.now() - records[-1][3])
                self._receiver.receive(records)
            # On a busy stream one read then brings many entries; what comes after a rest waits for nothing.
            if reply and len(records) < _MAX_ENTRIES:
                await anyio.sleep(PACE)

    def _read(self, stream: bytes, entry_id: bytes, fields: Mapping[bytes, bytes], shift: float) -> list[SignalRecord]:
        try:
            if fields.get(b"o", b"").hex() == self._origin:
                return []
            entry = _codec.unpack_entry(entry_id, fields, shift)
        except _codec.UndecodableError as error:
            _note(self._tally, error)
            return []
        if stream in self._again_until and self._is_past(stream, entry_id, entry):
            return []
        arrival = self._positions[stream].arrive(
            entry.origin, entry.position, len(entry.records), is_first=entry.is_first
        )
        self._tally.repeated += arrival.fresh_from
        if arrival.missed:
            self._miss(arrival.missed, until=entry.records[0][3])
        fresh = entry.records[arrival.fresh_from :]
        if self._mirror is None:
            return fresh
        return [record for record in fresh if matches_pattern(record[0], self._mirror)]

    def _is_past(self, stream: Any, entry_id: bytes, entry: _codec.Entry) -> bool:
        """Whether an entry that is read again, but for the first time here, is from before this sink was opened."""
        if is_before(self._again_until[stream], entry_id):
            del self._again_until[stream]
            return False
        assert self._began_at is not None
        return entry.origin not in self._positions[stream] and entry.records[-1][3] < self._began_at

    def _miss(self, count: int, *, until: float) -> None:
        """Tell of signals that never came: each time as a signal and a count, now and then in the log."""
        self._tally.gaps += 1
        self._tally.missed += count
        self._receiver.missed(count)
        now = self._receiver.now()
        if now >= self._log_again_at:
            _log.warning(
                "%d signals of others never came, in all %d: trimmed, lost by the server or dropped by their senders,"
                " and raised more than %.1f s ago",
                self._tally.missed - self._missed_logged,
                self._tally.missed,
                now - until,
            )
            self._missed_logged, self._log_again_at = self._tally.missed, now + LOG_SECONDS


def news_of(fields: Mapping[bytes, bytes]) -> HealthNews:
    """Return what an entry of the control stream says; raises whatever it finds in one that is none of ours."""
    _codec.check_version(fields[b"v"], _codec.HEALTH_VERSION)
    kind, processor = fields[b"k"].decode(), _codec.text(fields[b"p"])
    if kind not in _KINDS:
        raise _codec.UndecodableError(f"kind {kind!r:.40}")
    row = _codec.unpack_row(processor, fields[b"r"]) if b"r" in fields else None
    failures = row.record.failures if row is not None else int(fields[b"n"])
    reported = int(fields.get(b"m", 0))
    return HealthNews(cast("NewsKind", kind), fields[b"o"].hex(), processor, row, failures, reported)


def _newer_news(fields: Mapping[bytes, bytes]) -> HealthNews | None:
    """Return what an entry of a newer version tells all the same: whose row cannot be read from now on, if any."""
    processor, value = fields.get(b"p"), fields.get(b"r", b"")
    row = None if processor is None else _codec.known_row(_codec.text(processor), value)
    if row is None:
        return None
    name = row.record.processor
    return HealthNews("healed", "", name, SharedRecord.unreadable(name, row.version), 0)


def _note(tally: Tally, error: Exception) -> None:
    if isinstance(error, _codec.NewerError):
        if not tally.foreign:
            _log.warning(
                "a newer version of this library shares the bus (%s): what it writes is passed over, and a processor"
                " that it decided about is judged by this process alone; upgrade this one; further entries are counted",
                error,
            )
        tally.foreign += 1
        return
    if not tally.undecodable:
        _log.warning("an entry on the bus cannot be read and is passed over: %s; further ones are counted", error)
    tally.undecodable += 1


def _parts(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence or 0)
