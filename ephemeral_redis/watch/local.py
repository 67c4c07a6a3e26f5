"""`LocalWatch`: what one process shows of itself, without a bus."""

from __future__ import annotations

import os
import platform
import socket
import weakref
from collections import Counter, deque
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio

from ephemeral.abc import current_loop

from .changes import ChangeLog
from .compose import picture_rung
from .picture import Change, FleetPicture, GroupPicture, ScopeRate, WorkerPicture

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from ephemeral import LadderStatus, SignalEvent, SignalSink

EVERY_SECONDS = 1.0
LEAST_PAUSE = 0.2
"""Between two pictures, however much changes."""

RATE_SECONDS = 10.0
"""Over how long signals are counted."""

MAX_WAITING = 10_000
"""Signals that may wait for a slow reader; the oldest go first."""

SIGNALS_PACE = 0.05
"""Between two lots of signals."""

_CHANGES = "failover.requested:*, failover.restored:*, probe.testing:*, probe.success:*, probe.failed:*"
_KINDS = {
    "failover.requested": ("down", True),
    "failover.restored": ("restored", True),
    "probe.testing": ("probing", False),
    "probe.success": ("probe good", False),
    "probe.failed": ("probe failed", False),
}


class LocalWatch:
    """Shows one sink of this process: its ladders, its signals, its counters. On asyncio and trio.

        async with LocalWatch(sink).pictures() as pictures:
            async for picture in pictures: ...

    Args:
        sink: Which.
    """

    def __init__(self, sink: SignalSink) -> None:
        self._sink = sink
        self._started = sink.now()
        self._changes = ChangeLog()
        for event in sink.sense(_CHANGES):
            self._note(event, is_past=True)
        note = weakref.WeakMethod(self._note)

        def heard(event: SignalEvent) -> None:
            if (own := note()) is not None:
                own(event)

        # From now on, whether anybody looks or not, and until nobody has this watch any more.
        weakref.finalize(self, sink.subscribe(heard, _CHANGES).close)

    def __repr__(self) -> str:
        return f"<LocalWatch of {self._sink!r}>"

    def picture(self) -> FleetPicture:
        """Return how things stand now; no I/O. Callable from any thread."""
        sink = self._sink
        now = sink.now()
        ladders = sink.get_ladders()
        scopes = _rates(sink, now)
        return FleetPicture(
            namespace="",
            at=now,
            read_at=now,
            problem=None,
            groups=tuple(_group(ladder, sink.origin, now) for ladder in ladders),
            workers=(self._worker(ladders, now),),
            scopes=scopes,
            scopes_known=len(scopes),
            changes=self._changes.latest_first(),
            server=None,
        )

    @asynccontextmanager
    async def pictures(self, every: float = EVERY_SECONDS) -> AsyncGenerator[AsyncIterator[FleetPicture]]:
        """Give a picture at once, then one each *every* seconds and one soon after each change of health."""
        loop, news = current_loop(), [anyio.Event()]

        def heard(_: SignalEvent) -> None:
            with suppress(RuntimeError):  # the loop is ending, and with it this block
                loop.call_soon_threadsafe(news[0].set)

        async def pictures() -> AsyncGenerator[FleetPicture]:
            while True:
                news[0] = anyio.Event()
                yield self.picture()
                await anyio.sleep(LEAST_PAUSE)
                with anyio.move_on_after(max(0.0, every - LEAST_PAUSE)):
                    await news[0].wait()

        async with aclosing(pictures()) as shown:
            with self._sink.subscribe(heard, _CHANGES):
                yield shown

    @asynccontextmanager
    async def signals(self) -> AsyncGenerator[AsyncIterator[Sequence[SignalEvent]]]:
        """Give all signals that the sink gets from now on; those a slow reader lost are told as ``bus.gap:<n>``."""
        loop, news = current_loop(), [anyio.Event()]
        # Numbered, so that a reader sees what was pushed out before its turn; no step of this needs a lock.
        numbers = count()
        kept: deque[tuple[int, SignalEvent]] = deque(maxlen=MAX_WAITING)

        def heard(event: SignalEvent) -> None:
            kept.append((next(numbers), event))
            if len(kept) == 1:
                with suppress(RuntimeError):  # the loop is ending, and with it this block
                    loop.call_soon_threadsafe(news[0].set)

        async def batches() -> AsyncGenerator[list[SignalEvent]]:
            expected = 0
            while True:
                news[0] = anyio.Event()
                if not kept:
                    await news[0].wait()
                await anyio.sleep(SIGNALS_PACE)
                taken = [kept.popleft() for _ in range(len(kept))]
                batch = [event for _, event in taken]
                missed = taken[-1][0] + 1 - expected - len(taken) if taken else 0
                if missed > 0:
                    batch.insert(0, batch[0]._replace(signal=f"bus.gap:{missed}", key=None, payload=None))
                expected = taken[-1][0] + 1 if taken else expected
                yield batch

        async with aclosing(batches()) as lots:
            with self._sink.subscribe(heard):
                yield lots

    def _note(self, event: SignalEvent, *, is_past: bool = False) -> None:
        name, _, rest = event.signal.partition(":")
        kind, is_edge = _KINDS[name]
        processor = rest.partition("→")[0]
        records = (rung.record for ladder in self._sink.get_ladders() for rung in ladder.rungs)
        record = next((record for record in records if record.processor == processor), None)
        # What is read back from the window says no more than its name did.
        if record is not None and not is_past and kind == "down" and record.state == "isolated":
            kind = "isolated"
        epoch = record.epoch if record is not None and not is_past else 0
        self._changes.add(
            Change(at=event.timestamp, kind=kind, processor=processor, epoch=epoch, by=event.origin, is_edge=is_edge)
        )

    def _worker(self, ladders: Sequence[LadderStatus], now: float) -> WorkerPicture:
        statistics = self._sink.statistics()
        bus: Any = statistics.bus

        def counted(name: str) -> Any:
            return getattr(bus, name, 0)

        return WorkerPicture(
            origin=self._sink.origin,
            name=f"{socket.gethostname()}:{os.getpid()}",
            version=_own_version(),
            python=platform.python_version(),
            started=self._started,
            told=now,
            is_degraded=self._sink.is_degraded,
            degraded_seconds=float(counted("degraded_seconds")),
            raised=statistics.raised - counted("remote"),
            sent=counted("sent"),
            dropped=counted("dropped"),
            outbox=counted("outbox"),
            remote=counted("remote"),
            missed=counted("missed"),
            lag=float(counted("lag")),
            undecodable=counted("undecodable"),
            reconnects=counted("reconnects"),
            pending=sum(ladder.statistics.pending_count for ladder in ladders),
            active=sum(ladder.statistics.active_count for ladder in ladders),
            listener_errors=statistics.listener_errors,
            undelivered=statistics.undelivered,
        )


def _group(ladder: LadderStatus, origin: str, now: float) -> GroupPicture:
    statistics = ladder.statistics
    rungs = tuple(
        picture_rung(
            rung.record.processor,
            rung.priority,
            rung.record,
            failures=rung.failures,
            down_alone=(origin,) if rung.record.is_local and not rung.record.is_up else (),
            now=now,
        )
        for rung in ladder.rungs
    )
    return GroupPicture(
        group=ladder.group,
        rungs=rungs,
        route=ladder.route,
        workers=1,
        pending=statistics.pending_count,
        active=statistics.active_count,
        completed=statistics.total_completed,
        failed=statistics.total_failed,
        cancelled=statistics.total_cancelled,
        abandoned=statistics.total_abandoned,
        undelivered=statistics.total_undelivered,
    )


def _rates(sink: SignalSink, now: float) -> tuple[ScopeRate, ...]:
    """Count the signals of the last seconds in their scopes of one and of two segments, as a bus counts them."""
    within = min(RATE_SECONDS, sink.max_age)
    counts = Counter[str]()
    for event in sink.sense(lambda event: event.timestamp >= now - within):
        first, colon, rest = event.signal.partition(":")
        counts[first] += 1
        if colon:
            counts[f"{first}:{rest.partition(':')[0]}"] += 1
    busiest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ScopeRate(scope=scope, count=count, within=within) for scope, count in busiest)


def _own_version() -> str:
    try:
        return version("ephemeral-redis")
    except PackageNotFoundError:  # used from a checkout that was never installed
        return "unknown"
