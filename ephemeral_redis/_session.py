"""One connection: greet the server, tell and hear what was missed, then send and follow until something fails."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from redis.exceptions import ResponseError

from ephemeral.abc import BusUnavailableError, HealthNews

from . import _codec
from ._client import READER_SECONDS, client_settings, close_clients, patience_of
from ._errors import SignalBusError
from ._reader import ControlReader, SignalReader
from ._refusals import is_passing
from ._roster import Roster
from ._scripts import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

    from anyio.abc import TaskGroup

    from ephemeral.abc import SharedRecord, SignalReceiver, Swap

    from ._clock import BusClock
    from ._mirror import Mirror
    from ._reports import Reports
    from ._sender import Sender
    from ._servers import Server
    from ._settings import Settings
    from ._statistics import Tally

MINIMUM_VERSION = (6, 2)
"""The first server with ``XTRIM MINID`` and exclusive ranges of streams."""

GREETING_SECONDS = 3.0
"""How long greeting may take in all: a server that hangs must not hold up the notice that it does."""


class Session:
    """Runs again and again; what readers and sender know outlives each run. Lives on the portal's thread.

    Attributes:
        is_up: Whether the server was greeted and has not failed since.
        was_up: Whether the last run came so far.
    """

    def __init__(
        self,
        settings: Settings,
        origin: str,
        clock: BusClock,
        tally: Tally,
        *,
        sender: Sender,
        reports: Reports,
        mirror: Mirror,
        receiver: SignalReceiver,
        on_reached: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._origin = origin
        self._clock = clock
        self._sender = sender
        self._reports = reports
        self._mirror = mirror
        self._on_reached = on_reached
        self._control = ControlReader(settings.keys.control, mirror, tally, origin)
        streams = [settings.keys.signals] if settings.mirror is not None else []
        streams += [settings.keys.items] if settings.mirror_items else []
        self._signals = SignalReader(
            streams, receiver, clock, tally, origin=origin, mirror="*" if settings.mirror is None else settings.mirror
        )
        self._roster = Roster(settings, clock, receiver) if settings.is_listed else None
        self._calls: Calls | None = None
        self._place: object = None
        self._questions: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._asked = anyio.Event()
        self._offers: deque[tuple[Swap, Future[bool]]] = deque()
        self._offered = anyio.Event()
        self._unanswered: set[Future[Any]] = set()
        self.is_up = False
        self.was_up = False

    async def run(self) -> None:
        """Run until something fails, and raise that."""
        self.was_up = False
        settings = self._settings
        with anyio.fail_after(GREETING_SECONDS):
            server = await settings.find_server()
        if server.place != self._place:
            self._place = server.place
            self._signals.rewind()
        command = server.make_client(**client_settings("command"))
        control = server.make_client(**client_settings("control", timeout=READER_SECONDS))
        signals = server.make_client(**client_settings("signals", timeout=READER_SECONDS))
        try:
            calls = Calls(command, settings.keys, bytes.fromhex(self._origin), self._clock, patience_of(command))
            with anyio.fail_after(GREETING_SECONDS):
                rows = await self._greet(calls)
            async with anyio.create_task_group() as tasks:
                self._calls, self.is_up, self.was_up = calls, True, True
                # Before anybody is told that the bus is reached: from then on nothing may say that it is away.
                self._mirror.found(rows)
                self._on_reached()
                tasks.start_soon(self._ask, tasks)
                tasks.start_soon(self._offer)
                tasks.start_soon(self._control.run, control, calls)
                tasks.start_soon(self._signals.run, signals)
                tasks.start_soon(self._reports.run, calls)
                tasks.start_soon(self._sender.run, calls)
                tasks.start_soon(_until_moved, server)
                if self._roster is not None:
                    tasks.start_soon(self._roster.run, calls)
        finally:
            self.is_up = False
            self._break_off()
            await close_clients(command, control, signals)

    async def leave(self) -> None:
        """Take back what this sink told of itself, if the server can be reached; else that ages out."""
        if self._roster is not None and self._calls is not None and self.is_up:
            with contextlib.suppress(Exception):  # whatever keeps it from that, nothing may keep it from ending
                await self._roster.leave(self._calls)

    def swap(self, swap: Swap, future: Future[bool]) -> None:
        """Offer a decision, and end *future* with the answer."""
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        self._offers.append((swap, future))
        self._offered.set()

    def count(self, scope: str, within: float, flushed: Future[None], future: Future[int]) -> None:
        """Count signals once *flushed* has ended, and end *future* with the number."""
        self._question(future, partial(self._count, scope, within, flushed, future))

    def _question(self, future: Future[Any], question: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        self._questions.append(question)
        self._asked.set()

    def _break_off(self) -> None:
        """End all futures of this run. Whether the table took a decision is not known then."""
        self._questions.clear()
        self._offers.clear()
        self._mirror.drop_questions()
        for future in tuple(self._unanswered):
            future.set_exception(BusUnavailableError("the connection ended"))

    async def _ask(self, tasks: TaskGroup) -> None:
        # A task of its own: in a plain callback of the loop, as questions come, none can be started.
        while True:
            self._asked = anyio.Event()
            while self._questions:
                tasks.start_soon(self._questions.popleft())
            await self._asked.wait()

    async def _offer(self) -> None:
        # One after the other: a worker's decisions reach the table in the order in which they were taken.
        while True:
            self._offered = anyio.Event()
            while self._offers:
                await self._swap(*self._offers.popleft())
            await self._offered.wait()

    async def _greet(self, calls: Calls) -> dict[str, SharedRecord]:
        await _check_version(calls.client, self._settings.address)
        await _check_layout(calls, self._settings.address)
        # Failures first, so that the table, as it is read next, confirms the trips that were taken alone.
        await self._reports.tell(calls)
        asked_at = time.monotonic()
        snapshot = await calls.snapshot()
        self._clock.learn(snapshot.server_time, asked_at=asked_at, answered_at=time.monotonic())
        rows = await self._control.catch_up(calls.client, snapshot)
        for processor in tuple(self._mirror.rows):
            await self._mirror.heal(calls, processor, rows.get(processor))
        await self._signals.catch_up(calls.client)
        return rows

    async def _swap(self, swap: Swap, future: Future[bool]) -> None:
        calls = self._calls
        assert calls is not None
        asked_at = time.monotonic()
        try:
            is_done, server_time, row = await calls.swap(swap)
            if not is_done:
                # It may have lost its data without a word, as FLUSHALL does; whoever asked decides on what is back.
                row = await self._mirror.heal(calls, swap.record.processor, row)
        except ResponseError as error:
            if is_passing(error):
                # As if it were away: else a decision that it refused would be offered again by nobody.
                raise
            future.set_exception(BusUnavailableError(str(error)))
            return
        self._clock.learn(server_time, asked_at=asked_at, answered_at=time.monotonic())
        kind, origin = (swap.cause, self._origin) if is_done else ("healed", "")
        news = HealthNews(kind, origin, swap.record.processor, row, 0 if row is None else row.record.failures)
        if row is not None and not row.is_readable:
            # Nothing readable of this version will come by the stream: told here, so that nobody waits for it.
            self._mirror.hear(news)
        self._mirror.answer_when_known(news, future, is_done=is_done)

    async def _count(self, scope: str, within: float, flushed: Future[None], future: Future[int]) -> None:
        calls = self._calls
        assert calls is not None
        sent = anyio.Event()
        flushed.add_done_callback(lambda _: sent.set())
        try:
            await sent.wait()
            oldest = f"{(self._clock.now() - within) * 1e6:.0f}"
            future.set_result(await calls.client.zcount(calls.keys.scope(scope), oldest, "+inf"))
        except ResponseError as error:
            future.set_exception(BusUnavailableError(str(error)))


async def _until_moved(server: Server) -> None:
    await server.moved()
    raise ConnectionError("another server is the master now")


async def _check_version(client: Any, address: str) -> None:
    try:
        info = await client.info("server")
    except ResponseError:
        return  # the right to ask is not needed for the rest
    text = str(info.get("redis_version", ""))
    found = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if len(found) == 2 and found < MINIMUM_VERSION:
        raise SignalBusError(address, f"the server is version {text}, and 6.2 is the least")


async def _check_layout(calls: Calls, address: str) -> None:
    await calls.client.hsetnx(calls.keys.marks, b"layout", b"%d" % _codec.LAYOUT)
    layout = await calls.client.hget(calls.keys.marks, b"layout")
    try:
        _codec.check_version(layout, b"%d" % _codec.LAYOUT)
    except _codec.NewerError:
        reason = f"a newer version of this library laid out the namespace: layout {layout.decode()}, and this one knows"
        advice = "upgrade this worker, or give it a namespace of its own"
        raise SignalBusError(address, f"{reason} {_codec.LAYOUT}", advice) from None
    except _codec.UndecodableError:
        reason = f"the namespace has layout {layout!r}, which no version of this library writes"
        raise SignalBusError(address, reason, "give the bus a namespace that nothing else uses") from None
