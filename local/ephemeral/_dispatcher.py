"""Handlers that wait: signals are taken where they are raised, and handled in tasks, a few at once."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
import anyio.lowlevel

from ._blocks import OneBlock
from ._bodies import BodyRunner, is_async_function, order_to_end
from ._checks import whole_number
from ._listeners import Listeners, Subscription
from ._loops import Loop
from ._patterns import Pattern, compile_pattern
from ._signals import SignalEvent
from ._sink import SignalSink
from ._workers import Worker, Workers

AsyncHandler = Callable[[SignalEvent], Coroutine[Any, Any, object]]
"""Awaited with an event; what it returns is ignored."""

_log: Final = logging.getLogger("ephemeral")
_current: ContextVar[_Call] = ContextVar("ephemeral_handler_call")


@dataclass(frozen=True, slots=True)
class DispatcherStatistics:
    """What a dispatcher has done and is doing, counted by calls of handlers: one for each handler a signal matches.

    Attributes:
        queued: Calls that wait.
        active: Calls under way.
        processed: Calls that returned.
        failed: Calls that raised, or were cut short because the block was left by an exception.
        dropped: Calls given up because too many waited, because of `SignalDispatcher.cancel`, or because the block was
            left by an exception.
    """

    queued: int
    active: int
    processed: int
    failed: int
    dropped: int


NO_CALLS: Final = DispatcherStatistics(0, 0, 0, 0, 0)


class _Call:
    """One handler that is to be called with one event."""

    __slots__ = ("event", "handler", "is_over")

    def __init__(self, handler: AsyncHandler, event: SignalEvent) -> None:
        self.handler = handler
        self.event = event
        self.is_over = False


class _Flush:
    """Somebody who waits for the calls accepted so far."""

    __slots__ = ("calls", "done")

    def __init__(self, calls: deque[_Call]) -> None:
        self.calls = calls
        self.done = anyio.Event()

    def look(self) -> None:
        # Calls end nearly in this order, so that each is looked at about once.
        while self.calls and self.calls[0].is_over:
            self.calls.popleft()
        if not self.calls:
            self.done.set()


class _Attachment(Subscription):
    """A subscription that its dispatcher closes as it ends, and forgets as it is closed."""

    def __init__(self, subscription: Subscription, attached: set[_Attachment]) -> None:
        self._subscription = subscription
        self._attached = attached
        attached.add(self)

    def close(self) -> None:
        """End the subscription."""
        self._subscription.close()
        self._attached.discard(self)


class SignalDispatcher(OneBlock):
    """Calls async handlers with the signals of one or more sinks, so many at once, and the raiser waits for none.

        async with SignalDispatcher(max_concurrency=2) as dispatcher:
            dispatcher.register("order.*", send_mail)
            dispatcher.attach(sink)

    Each handler whose pattern a signal matches is called once; calls begin in the order of the raises. One that raises
    is logged and counted, and stops no other. Signals may be raised from any thread, and before the block is entered:
    they wait. Leaving the block normally detaches it and waits for what was accepted; leaving it by an exception
    cancels. Runs on asyncio and on trio; `flush` and the block belong to its loop, all else to any thread.

    Args:
        max_concurrency: How many calls may be under way, at least 1.
        max_queue: How many may wait, at least 1; beyond that the oldest are dropped, and counted.

    Raises:
        ValueError: A bound is no whole number of at least 1.
    """

    def __init__(self, max_concurrency: int = 4, max_queue: int = 1000) -> None:
        self._workers = Workers(self._serve, limit=whole_number("max_concurrency", max_concurrency))
        self._limit = whole_number("max_queue", max_queue)
        self._handlers = Listeners(None, self._workers.now)
        self._attached: set[_Attachment] = set()
        self._loop: Loop | None = None
        self._is_scheduled = self._is_detached = self._is_closed = False
        # Unbounded, and cut to the limit by whoever gets the lock: a raise must not wait for it.
        self._queue: deque[_Call] = deque()
        self._lock = threading.Lock()
        self._active: list[_Call] = []
        self._flushes: list[_Flush] = []
        self._processed = self._failed = self._dropped = 0

    def register(self, pattern: Pattern, handler: AsyncHandler) -> Subscription:
        """Have *handler* called with each matching signal raised from now on.

        Closing what this returns ends that; calls that wait already are still made.

        Raises:
            TypeError: *handler* is not async, or *pattern* has the wrong type.
            ValueError: *pattern* has an empty part.
        """
        if not is_async_function(handler):
            raise TypeError(f"handler must be async, not {handler!r}; plain functions: SignalSink.subscribe()")
        return self._handlers.add(functools.partial(self._accept, handler), compile_pattern(pattern))

    def attach(self, sink: SignalSink) -> Subscription:
        """Take the signals of *sink*, those that its bus brings included, until what this returns is closed.

        Raises:
            RuntimeError: The block has been left, or `cancel` was called.
            TypeError: *sink* is no `SignalSink`.
        """
        if not isinstance(cast("object", sink), SignalSink):
            raise TypeError(f"sink must be a SignalSink, not {sink!r}; patterns and handlers: register()")
        attachment = _Attachment(sink.subscribe(self.dispatch), self._attached)
        # Asked last: whoever detaches either closes this one too or is seen here.
        if self._is_detached:
            attachment.close()
            raise RuntimeError("this dispatcher has ended and accepts nothing more; make a new one")
        return attachment

    def _detach(self) -> None:
        self._is_detached = True
        for attachment in self._attached.copy():
            attachment.close()

    def dispatch(self, event: SignalEvent) -> None:
        """Take one signal by hand. Never blocks."""
        self._handlers.deliver(event)

    async def flush(self) -> None:
        """Wait until all that was accepted so far has been handled or dropped. Always a cancellation point.

        Raises:
            RuntimeError: Called by a handler of this dispatcher, which would wait for itself; or outside of the block
                while something waits, which nobody would handle.
        """
        if _current.get(None) in self._active:
            raise RuntimeError("flush() in a handler of the same dispatcher would wait for itself")
        await anyio.lowlevel.checkpoint()
        flush = _Flush(deque((*self._active, *self._queue.copy())))
        flush.look()
        if not flush.done.is_set() and not self._workers.is_open:
            raise RuntimeError("flush() needs the running block: `async with dispatcher:`")
        self._flushes.append(flush)
        try:
            await flush.done.wait()
        finally:
            self._flushes.remove(flush)

    def cancel(self) -> None:
        """Accept nothing more and drop what waits; the block's end cuts what is under way instead of waiting for it.

        Callable from any thread, and again.
        """
        self._detach()
        self._close()

    def statistics(self) -> DispatcherStatistics:
        """Return all counters of one instant."""
        with self._lock:
            self._trim()
            return DispatcherStatistics(
                len(self._queue), len(self._active), self._processed, self._failed, self._dropped
            )

    def _refusal(self) -> str:
        return "a dispatcher can be opened only once; make a new one for a new block"

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncGenerator[None]:
        try:
            async with self._workers:
                self._loop = self._workers.loop
                self._look()
                try:
                    yield
                finally:
                    self._detach()
                if not self._is_closed:
                    await self.flush()
        finally:
            self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._limit = 0
        with self._lock:
            self._trim()
        self._call_look()

    # In any thread

    def _accept(self, handler: AsyncHandler, event: SignalEvent) -> None:
        if self._is_closed:
            return
        self._queue.append(_Call(handler, event))
        # If the lock is taken, its holder or the next signal cuts the excess off.
        if len(self._queue) > self._limit and self._lock.acquire(blocking=False):
            try:
                self._trim()
            finally:
                self._lock.release()
        self._call_look()

    def _call_look(self) -> None:
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever would have handled it
                self._loop.call_soon_threadsafe(self._look)

    def _trim(self) -> None:
        while len(self._queue) > self._limit:
            self._queue.popleft().is_over = True
            self._dropped += 1

    # On the loop

    def _look(self) -> None:
        # First, so that what arrives from here on is scheduled again.
        self._is_scheduled = False
        if self._queue:
            self._workers.wake()
        for flush in self._flushes:
            flush.look()

    async def _serve(self, worker: Worker) -> None:  # noqa: ARG002  none of these is ever interrupted
        workers, runner = self._workers, BodyRunner(_call_handler)
        while True:
            if not self._queue:
                await workers.park()
                continue
            if workers.latest >= workers.slice_end:
                await workers.breathe()
                continue
            call = self._take()
            if call is None:  # another thread has just cancelled it
                continue
            # A context of its own: the next handler, in the same task, must not see what this one sets.
            context = copy_context()
            await runner.rest(context, context.run(runner.start, call))
            error, runner.error, runner.value = runner.error, None, None
            if error is None:
                self._processed += 1
                self._over(call)
            else:
                self._failed += 1
                self._over(call)
                self._report(call, error)
                await workers.after_failure(error)
            del call, context, error  # a worker that waits must keep nothing alive

    def _take(self) -> _Call | None:
        with self._lock:
            self._trim()
            if not self._queue:
                return None
            call = self._queue.popleft()
        self._active.append(call)
        if self._queue:
            self._workers.wake()
        return call

    def _over(self, call: _Call) -> None:
        call.is_over = True
        self._active.remove(call)
        self._workers.latest = self._workers.now()
        for flush in self._flushes:
            flush.look()

    def _report(self, call: _Call, error: BaseException) -> None:
        order = order_to_end(error)
        if order is not None:
            raise order
        if not isinstance(error, self._workers.cancelled_class):
            _log.error("handler %r raised on signal %r", call.handler, call.event.signal, exc_info=error)


def _call_handler(call: _Call) -> Coroutine[Any, Any, object]:
    _current.set(call)
    return call.handler(call.event)
