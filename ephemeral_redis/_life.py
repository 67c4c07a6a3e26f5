"""One life of a backend, from its opening to its end or a fork: its thread, and what survives a lost connection."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import redis.exceptions

from ephemeral.abc import BusUnavailableError

from ._errors import SignalBusError
from ._mirror import Mirror
from ._portal import Portal
from ._refusals import is_outage, reason_of
from ._reports import Reports
from ._sender import Sender
from ._session import Session
from ._statistics import BusStatistics, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemeral.abc import HealthReport, HealthWatcher, SignalReceiver, Swap

    from ._clock import BusClock
    from ._outbox import Outbox
    from ._settings import Settings

FIRST_BACKOFF = 0.02
LAST_BACKOFF = 0.5
"""Most seconds between two tries to reach the bus, so that all is well again within a second of its return."""

T = TypeVar("T")
_log = logging.getLogger("ephemeral")


class Life:
    """Holds the thread. Its methods may be called from any thread, and never block.

    Args:
        settings: What the backend was made with.
        origin: Who this is, 16 hexadecimal digits.
        clock: The bus's clock.
        outbox: What waits to be sent; may hold signals already.

    Attributes:
        is_started: Whether it has begun.
        is_ended: Whether it is over.
    """

    def __init__(self, settings: Settings, origin: str, clock: BusClock, outbox: Outbox) -> None:
        self._settings = settings
        self.origin = origin
        self.tally = Tally()
        self.outbox = outbox
        self.sender = Sender(
            self.outbox,
            clock,
            self.tally,
            bounds=settings.bounds,
            sink_now=self._sink_now,
            publish_items=settings.publish_items,
        )
        self._clock = clock
        self._mirror = Mirror()
        self._reports = Reports(clock, self.tally, self._mirror, origin)
        self._portal = Portal(self._main)
        self._session: Session | None = None
        self._receiver: SignalReceiver | None = None
        self._opened: Future[None] = Future()
        self._left: Future[int] | None = None
        self._stop: anyio.Event | None = None
        self._stop_timeout = 0.0
        self._lost_at: float | None = None
        self._lost_seconds = 0.0
        self._promised: set[Future[Any]] = set()
        self._faults: set[type[BaseException]] = set()
        self.is_started = False
        self.is_ended = False

    # For any thread

    @property
    def is_degraded(self) -> bool:
        """Whether the bus cannot be reached now."""
        return self._mirror.is_lost

    def start(self, receiver: SignalReceiver) -> Future[None]:
        """Start the thread."""
        self.is_started = True
        self._receiver = receiver
        self._lost_at = time.monotonic()
        self._portal.start()
        return self._opened

    def stop(self, timeout: float) -> Future[int]:
        """Send what is left for at most *timeout* seconds, and end the thread."""
        left: Future[int] = Future()
        if self.is_ended:
            left.set_result(self.sender.pending)
            return left

        def stop() -> None:
            self._left = left
            self._stop_timeout = timeout
            if self._stop is not None:
                self._stop.set()

        self._portal.call(stop)
        return left

    def wake(self) -> None:
        """Tell the sender that something waits."""
        self.sender.is_idle = False
        self._portal.call(self.sender.wake)

    def flush(self) -> Future[None]:
        """Return a future that ends once the server has all that was published before."""
        marker = self._promise(self.outbox.mark())
        self.wake()
        return marker

    def report(self, report: HealthReport) -> None:
        """Keep a report until the health table has it."""
        ended_at = time.monotonic()
        if self.is_started:
            self._portal.call(lambda: self._reports.add(report, ended_at))
        else:
            self._reports.add(report, ended_at)  # which is bounded; calls that wait for the thread are not

    def swap(self, swap: Swap) -> Future[bool]:
        """Offer a decision to the health table."""
        future: Future[bool] = self._promise(Future())
        self._portal.call(lambda: self._in_session(future, lambda session: session.swap(swap, future)))
        return future

    def count(self, scope: str, within: float) -> Future[int]:
        """Count signals, this sink's own that still wait included."""
        future: Future[int] = self._promise(Future())
        # The marker is set now, on the caller's thread: what it has raised until here is to be counted.
        flushed = self.flush()
        self._portal.call(lambda: self._in_session(future, lambda s: s.count(scope, within, flushed, future)))
        return future

    def watch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* of health from now on."""
        self._portal.call(lambda: self._mirror.watch(watcher))
        if not self.is_started or self.is_ended:
            watcher.lost()  # there is no thread that could say so

    def unwatch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* nothing more."""
        self._portal.call(lambda: self._mirror.unwatch(watcher))

    def statistics(self) -> BusStatistics:
        """Return the counters."""
        tally, oldest, lost_at = self.tally, self.outbox.oldest(), self._lost_at
        return BusStatistics(
            is_degraded=self.is_degraded,
            degraded_seconds=self._lost_seconds + (time.monotonic() - lost_at if lost_at is not None else 0.0),
            reconnects=tally.reconnects,
            last_error=tally.last_error,
            outbox=self.sender.pending,
            oldest_age=0.0 if oldest is None else max(0.0, self._sink_now() - oldest),
            sent=tally.applied + tally.duplicate,
            applied=tally.applied,
            duplicate=tally.duplicate,
            stale=self.outbox.stale,
            dropped=self.outbox.dropped + tally.refused,
            batches=tally.batches,
            round_trip_p50=tally.percentile(0.5),
            round_trip_p99=tally.percentile(0.99),
            remote=tally.remote,
            lag=tally.lag,
            repeated=tally.repeated,
            gaps=tally.gaps,
            missed=tally.missed,
            undecodable=tally.undecodable,
            foreign=tally.foreign,
            reports=tally.reports,
            reports_dropped=self._reports.dropped,
            transitions=tally.transitions,
        )

    def _sink_now(self) -> float:
        """Return the time of the sink, by whose clock signals are stamped, until the last of them is sent."""
        return time.time() if self._receiver is None else self._receiver.now()

    def _promise(self, future: Future[T]) -> Future[T]:
        """Return *future*, which will end even if this life does before it is asked."""
        self._promised.add(future)
        future.add_done_callback(self._promised.discard)
        if self.is_ended:
            self._break_promises()
        return future

    def _break_promises(self) -> None:
        for future in tuple(self._promised):
            with contextlib.suppress(InvalidStateError):  # ended by another thread meanwhile
                future.set_exception(BusUnavailableError("closed"))

    # On the portal's thread

    def _in_session(self, future: Future[Any], ask: Callable[[Session], None]) -> None:
        if self._session is None or not self._session.is_up:
            if not future.done():
                future.set_exception(BusUnavailableError(self.tally.last_error or "not reached yet"))
        else:
            ask(self._session)

    async def _main(self) -> None:
        try:
            await self._run()
        finally:
            self._end()

    async def _run(self) -> None:
        assert self._receiver is not None
        session = Session(
            self._settings,
            self.origin,
            self._clock,
            self.tally,
            sender=self.sender,
            reports=self._reports,
            mirror=self._mirror,
            receiver=self._receiver,
            on_reached=self._reached,
        )
        self._session = session
        # Here, not where this was made: an event belongs to the loop it is made in, and the host's may be trio.
        self._stop = anyio.Event()
        if self._left is not None:
            self._stop.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hold, session)
            await self._stop.wait()
            with anyio.move_on_after(self._stop_timeout):
                await self._drained()
                await session.leave()
            tasks.cancel_scope.cancel()

    def _end(self) -> None:
        """Let nobody wait for this thread any more, whatever it ends by."""
        self.is_ended = True
        self._mirror.lose()
        self._break_promises()
        if not self._opened.done():
            self._opened.set_exception(BusUnavailableError("closed"))
        if self._left is not None:
            self._left.set_result(self.sender.pending)

    async def _drained(self) -> None:
        await self._reports.drained()
        # A ladder that hears only now what became of its last decision tells it by signals.
        await self._mirror.left()
        while self.sender.pending:
            await self._flushed()

    async def _flushed(self) -> None:
        sent = anyio.Event()
        self.flush().add_done_callback(lambda _: sent.set())
        await sent.wait()

    async def _hold(self, session: Session) -> None:
        """Keep the bus: one session after the other, further apart while it cannot be reached."""
        backoff = FIRST_BACKOFF
        while True:
            began_at = time.monotonic()
            try:
                await session.run()
            except Exception as error:  # noqa: BLE001  whatever it is, this thread must outlive it; _fault tells it
                cause = _first(error)
            else:
                return
            was_up = session.was_up
            reason = reason_of(cause)
            is_new = self.tally.last_error != reason
            self.tally.last_error = reason
            if is_new and isinstance(cause, SignalBusError):
                self._refuse(cause)
            elif not isinstance(cause, SignalBusError) and not is_outage(cause):
                self._fault(cause)
            # One connection that was cut says nothing of the server: it is asked once more before all is called lost.
            # Not one that fails again and again: a right that is missing would be asked for without a pause.
            lived_long = time.monotonic() - began_at > LAST_BACKOFF
            if was_up and lived_long and not isinstance(cause, (redis.exceptions.TimeoutError, TimeoutError)):
                backoff = FIRST_BACKOFF
                continue
            self._lose(reason)
            self._fail_to_open(reason)
            if was_up and lived_long:
                backoff = FIRST_BACKOFF
            # Full jitter: workers that lost the bus together do not come back together.
            await anyio.sleep(random.uniform(0, backoff))
            backoff = min(2 * backoff, LAST_BACKOFF)

    def _reached(self) -> None:
        if self._lost_at is not None:
            self._lost_seconds += time.monotonic() - self._lost_at
            self._lost_at = None
        if not self._opened.done():
            self._opened.set_result(None)
            return
        self.tally.reconnects += 1
        _log.info("the bus at %s is reached again", self._settings.address)

    def _lose(self, reason: str) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            _log.warning("the bus at %s is lost: %s; this process goes on alone", self._settings.address, reason)
        self._mirror.lose()

    def _fail_to_open(self, reason: str) -> None:
        if self._opened.done():
            return
        if self._settings.require:
            self._opened.set_exception(SignalBusError(self._settings.address, reason))
        else:
            _log.warning("the bus at %s is away: %s; this process goes on alone", self._settings.address, reason)
            self._opened.set_result(None)

    def _refuse(self, error: SignalBusError) -> None:
        """A server that is too old, or a namespace of another layout: no use in asking on."""
        if not self._opened.done():
            self._opened.set_exception(error)
        else:
            _log.error("the bus can no longer be used: %s", error)

    def _fault(self, error: BaseException) -> None:
        """A mistake in a program, ours or the client factory's: said loudly once, for to wait mends nothing."""
        if type(error) not in self._faults:
            self._faults.add(type(error))
            _log.error("a mistake keeps the bus at %s from use", self._settings.address, exc_info=error)
        if not self._opened.done():
            self._opened.set_exception(error)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
