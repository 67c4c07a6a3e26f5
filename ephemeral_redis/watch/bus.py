"""`BusWatch`: what a namespace of the bus shows, to whoever may read it."""

from __future__ import annotations

import logging
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from ephemeral import SignalEvent
from ephemeral.abc import Positions
from ephemeral_redis import _codec
from ephemeral_redis._client import BLOCK_SECONDS, READER_SECONDS, client_settings, redacted_url
from ephemeral_redis._clock import BusClock
from ephemeral_redis._keys import Keys
from ephemeral_redis._reader import FIRST, entries_of, is_before, last_id
from ephemeral_redis._refusals import is_outage
from ephemeral_redis._servers import server_finder

from .findings import Facts
from .reading import Reading
from .rights import lacking_rights, round_trips

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from typing import Self

    from ephemeral_redis._servers import FindServer

    from .picture import FleetPicture

EVERY_SECONDS = 1.0
"""From one picture to the next while nothing changes."""

LEAST_PAUSE = 0.2
"""Between two pictures, however much changes."""

READ_SECONDS = 3.0
"""How long one reading may take in all."""

SIGNALS_PACE = 0.05
"""Between two reads of signals: on a busy bus each then brings many."""

_MAX_ENTRIES = 32
_log = logging.getLogger("ephemeral")


class BusWatch:
    """Reads one namespace: pictures of the fleet, and its signals as they are raised. It can change nothing.

        async with BusWatch.from_url("redis://localhost", namespace="shop").pictures() as pictures:
            async for picture in pictures: ...

    The rights of the user *onlooker* in the page on the bus suffice. What it reads is bounded, however large the fleet
    is. It runs on asyncio alone, each block on connections of its own, which come back by themselves.

    Args:
        find_server: Returns the server as it is now.
        keys: The namespace.
        namespace: Its name.
        address: Where the bus is, for people; no secrets in it.

    Attributes:
        namespace: Whose.
        address: Where the bus is.
        problem: Why the bus cannot be read now; None: it can, or nobody has tried.
        reading: What is known of it.
    """

    def __init__(self, find_server: FindServer, keys: Keys, *, namespace: str, address: str) -> None:
        self.namespace = namespace
        self.address = address
        self.problem: str | None = None
        self._find_server = find_server
        self._keys = keys
        self._clock = BusClock()
        self.reading = Reading(namespace, keys, self._clock)

    @classmethod
    def from_url(cls, url: str, *, namespace: str, **redis_py_options: Any) -> Self:
        """Return what watches the bus behind *url*, which is as for `RedisSignalBackend.from_url`.

        Args:
            url: Where the server is.
            namespace: Which fleet.
            **redis_py_options: As for the backend.

        Raises:
            TypeError: *url* or *namespace* is no ``str``, or nobody knows an option.
            ValueError: *url* or *namespace* cannot be read.
        """
        keys = Keys(namespace)
        finder = server_finder(url, redis_py_options, keys)
        return cls(finder, keys, namespace=namespace, address=redacted_url(url))

    def __repr__(self) -> str:
        return f"<BusWatch {self.namespace!r} at {self.address}>"

    @asynccontextmanager
    async def pictures(self, every: float = EVERY_SECONDS) -> AsyncGenerator[AsyncIterator[FleetPicture]]:
        """Give a picture at once, then one each *every* seconds and one soon after each change of health.

        While the bus is away they show what was read last, and the problem.

        Raises:
            RuntimeError: On trio.
        """
        _require_asyncio()
        async with aclosing(self._pictures(every)) as pictures:
            yield pictures

    @asynccontextmanager
    async def signals(self) -> AsyncGenerator[AsyncIterator[Sequence[SignalEvent]]]:
        """Give what all sinks raise from now on, oldest first, times being the bus's; none when ``problem`` changed.

        What never came, because it was read too late or the server lost it, is told as ``bus.gap:<n>``.
        """
        _require_asyncio()
        async with aclosing(self._signals()) as batches:
            await anext(batches)  # from here on nothing is passed over
            yield batches

    async def examine(self) -> Facts | None:
        """Look once, at the fleet, the server and this user's rights; None, with ``problem`` set, if that fails."""
        line = _Line(self._find_server)
        try:
            with anyio.fail_after(2 * READ_SECONDS):
                await line.open("doctor", "doctor-control")
                await self.reading.greet(line.client)
                await self.reading.read(line.client)
                latencies = await round_trips(line.client)
                may_write, lacking = await lacking_rights(line.client, self._keys)
                is_used = await line.client.hget(self._keys.marks, b"layout") is not None
        except Exception as error:  # noqa: BLE001  as for pictures
            await self._lose(line, error)
            return None
        finally:
            await line.close()
        return Facts(
            picture=self.reading.picture(),
            told=self.reading.told,
            latencies=latencies,
            denied=sorted(self.reading.denied),
            may_write=may_write,
            lacking=lacking,
            is_used=is_used,
        )

    async def _pictures(self, every: float) -> AsyncGenerator[FleetPicture]:
        reading, line = self.reading, _Line(self._find_server)
        scopes_at = 0.0
        try:
            while True:
                began_at = time.monotonic()
                with_scopes = began_at >= scopes_at
                try:
                    with anyio.fail_after(READ_SECONDS):
                        if line.client is None:
                            await line.open("watch", "watch-control")
                            await reading.greet(line.client)
                        await reading.read(line.client, with_scopes=with_scopes)
                except Exception as error:  # noqa: BLE001  whatever it is, the view goes on and shows it
                    await self._lose(line, error)
                else:
                    self.problem = None
                    scopes_at = began_at + 0.95 * every if with_scopes else scopes_at
                yield reading.picture(self.problem)
                await self._rest(line, began_at + every, began_at + LEAST_PAUSE)
        finally:
            await line.close()

    async def _rest(self, line: _Line, until: float, at_least_until: float) -> None:
        """Wait until it is time for the next picture, or the control stream has news."""
        await anyio.sleep(max(0.0, at_least_until - time.monotonic()))
        while (left := until - time.monotonic()) > 0:
            if line.reader is None or self.problem is not None:
                await anyio.sleep(left)
                return
            block = max(1, int(min(left, BLOCK_SECONDS) * 1000))
            try:
                if await line.reader.xread(
                    {self._keys.control: self.reading.control_id or FIRST}, count=1, block=block
                ):
                    return
            except Exception:  # noqa: BLE001  the reading that follows finds out what it is
                return

    async def _signals(self) -> AsyncGenerator[list[SignalEvent]]:
        line, tail = _Line(self._find_server), _Tail(self._keys)
        pause, is_well = LEAST_PAUSE, False
        try:
            while True:
                try:
                    with anyio.fail_after(READ_SECONDS):
                        await line.open("tail")
                        await tail.catch_up(line.client)
                    self.problem, pause, was_well, is_well = None, LEAST_PAUSE, is_well, True
                    if not was_well:
                        yield []
                    while True:
                        events = await tail.read(line.client)
                        if events:
                            yield events
                        await anyio.sleep(SIGNALS_PACE)
                except Exception as error:  # noqa: BLE001  as for pictures
                    await self._lose(line, error)
                    is_well = False
                yield []
                await anyio.sleep(pause)
                pause = min(2 * pause, EVERY_SECONDS)
        finally:
            await line.close()

    async def _lose(self, line: _Line, error: BaseException) -> None:
        await line.close()
        if not is_outage(error) and not isinstance(error, (TimeoutError, _codec.UndecodableError)):
            _log.error("a mistake keeps the bus at %s from being read", self.address, exc_info=error)
        if isinstance(error, _codec.UndecodableError):
            self.problem = f"namespace {self.namespace!r} is laid out by another version of this library ({error})"
        else:
            self.problem = str(error).rstrip(".") or (
                "no answer in time" if isinstance(error, TimeoutError) else repr(error)
            )


def _require_asyncio() -> None:
    if not hasattr(anyio.lowlevel.current_token().native_token, "call_soon_threadsafe"):
        raise RuntimeError(
            "a bus is watched on asyncio, for redis-py runs on nothing else; in a trio program start a thread with a"
            " loop of its own: anyio.from_thread.start_blocking_portal()"
        )


class _Line:
    """The connections of one block.

    Args:
        find_server: Returns the server as it is now.

    Attributes:
        client: For questions; None: not open.
        reader: For what blocks; None: not open, or not wanted.
    """

    def __init__(self, find_server: FindServer) -> None:
        self.client: Any = None
        self.reader: Any = None
        self._find_server = find_server

    async def open(self, purpose: str, reader: str | None = None) -> None:
        """Find the server, and make clients; they connect when they are first used."""
        await self.close()
        make = (await self._find_server()).make_client
        timeout = {} if reader is not None else {"timeout": READER_SECONDS}
        self.client = make(**client_settings(purpose, **timeout))
        if reader is not None:
            self.reader = make(**client_settings(reader, timeout=READER_SECONDS))

    async def close(self) -> None:
        """Close what is open, within a second."""
        clients, self.client, self.reader = (self.client, self.reader), None, None
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            for client in clients:
                if client is not None:
                    await client.aclose()


class _Tail:
    """Follows both streams of signals.

    Args:
        keys: Of the namespace.
    """

    def __init__(self, keys: Keys) -> None:
        self._cursors: dict[Any, bytes | None] = {keys.signals: None, keys.items: None}
        self._positions = {stream: Positions() for stream in self._cursors}
        self._unreadable = 0

    async def catch_up(self, client: Any) -> None:
        """Find where to read on: at first at the end of the streams, later where it was left."""
        for stream, cursor in self._cursors.items():
            newest = await last_id(client, stream)
            if cursor is None:
                self._cursors[stream] = newest
            elif is_before(newest, cursor):
                self._cursors[stream] = FIRST  # the server lost its data

    async def read(self, client: Any) -> list[SignalEvent]:
        """Wait for news, for two seconds at most, and return them."""
        reply = await client.xread(self._cursors, count=_MAX_ENTRIES, block=int(BLOCK_SECONDS * 1000))
        events: list[SignalEvent] = []
        for stream, entry_id, fields in entries_of(reply):
            self._cursors[stream] = entry_id
            try:
                entry = _codec.unpack_entry(entry_id, fields)
            except _codec.UndecodableError:
                self._unreadable += 1
                continue
            arrival = self._positions[stream].arrive(
                entry.origin, entry.position, len(entry.records), is_first=entry.is_first
            )
            if arrival.missed:
                at = entry.records[0][3]
                events.append(SignalEvent(f"bus.gap:{arrival.missed}", 0, None, at, None, None, entry.origin))
            events += [SignalEvent(*record) for record in entry.records[arrival.fresh_from :]]
        return sorted(events, key=lambda event: event.timestamp) if len(self._cursors) > 1 else events
