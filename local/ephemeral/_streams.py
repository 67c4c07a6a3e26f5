"""Signals for tasks: a stream to iterate over, and the wait for a single one."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from ._checks import optional_seconds, whole_number
from ._listeners import Listeners, Subscription
from ._loops import Loop, current_loop
from ._patterns import Pattern, compile_pattern
from ._signals import SignalEvent


class SignalStream:
    """The signals raised while its ``async with`` block is open, for one task to iterate over.

    Raises from any thread reach it. It ends when its block, or that of its sink, is left; what is buffered by then is
    still read. Reading is always a cancellation point, and a cancelled read loses nothing.
    """

    def __init__(self, listeners: Listeners, pattern: Pattern | None, buffer: int) -> None:
        self._limit = whole_number("buffer", buffer)
        self._matches = None if pattern is None else compile_pattern(pattern)
        self._listeners = listeners
        self._subscription: Subscription | None = None
        self._loop: Loop | None = None
        # Unbounded, and cut to the limit by whoever gets the lock: a raise must not wait for it.
        self._buffer: deque[SignalEvent] = deque()
        self._lock = threading.Lock()
        self._dropped = 0
        # The waiting reader's event. Whoever pops it wakes the reader, so only one does.
        self._parked: deque[anyio.Event] = deque()
        self._is_reading = False
        self._is_ended = False

    @property
    def dropped(self) -> int:
        """How many signals, always the oldest, were thrown away because the reader was slow."""
        with self._lock:
            self._trim()
            return self._dropped

    async def __aenter__(self) -> Self:
        if self._subscription is not None:
            raise RuntimeError("a stream can be opened only once; call listen() again")
        self._loop = current_loop()
        self._subscription = self._listeners.add(self._push, self._matches, on_close=self.end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SignalEvent:
        if self._subscription is None:
            raise RuntimeError("the stream is not open: write `async with sink.listen(...) as events`")
        if self._is_reading:
            raise RuntimeError("two tasks read one stream; give each a listen() of its own")
        self._is_reading = True
        try:
            await anyio.lowlevel.checkpoint()
            while not self._buffer:
                if self._is_ended:
                    raise StopAsyncIteration
                await self._park()
            return self._take()
        finally:
            self._is_reading = False

    def end(self) -> None:
        """Take no more signals; the reader gets what is buffered and then the end. Callable from any thread."""
        self._is_ended = True
        if self._subscription is not None:
            self._subscription.close()
        self._wake()

    def _push(self, event: SignalEvent) -> None:
        self._buffer.append(event)
        # If the lock is taken, its holder or the next signal cuts the excess off.
        if len(self._buffer) > self._limit and self._lock.acquire(blocking=False):
            try:
                self._trim()
            finally:
                self._lock.release()
        self._wake()

    def _take(self) -> SignalEvent:
        with self._lock:
            self._trim()
            return self._buffer.popleft()

    def _trim(self) -> None:
        while len(self._buffer) > self._limit:
            self._buffer.popleft()
            self._dropped += 1

    async def _park(self) -> None:
        event = anyio.Event()
        self._parked.append(event)
        try:
            # Once more: what came before the line above found nobody to wake.
            if not self._buffer and not self._is_ended:
                await event.wait()
        finally:
            self._parked.clear()

    def _wake(self) -> None:
        try:
            event = self._parked.pop()
        except IndexError:
            return
        if self._loop is not None and not _call_soon(self._loop, event.set) and self._subscription is not None:
            self._subscription.close()


async def wait_for_signal(listeners: Listeners, pattern: Pattern, timeout: object) -> SignalEvent:
    """Return the first signal raised from now on that matches; raises as ``SignalSink.wait_for`` does."""
    matches = compile_pattern(pattern)
    limit = optional_seconds("timeout", timeout, zero=True)
    loop = current_loop()
    found: list[SignalEvent] = []
    arrived = anyio.Event()
    wakes = [arrived.set]  # whoever pops it calls it, so that one does, and only one

    def note(event: SignalEvent) -> None:
        if wakes:
            found.append(event)
            with contextlib.suppress(IndexError):
                _call_soon(loop, wakes.pop())

    with listeners.add(note, matches), anyio.move_on_after(limit):
        await arrived.wait()
    if not found:
        raise TimeoutError(f"no signal matched {pattern!r} within {limit} seconds")
    return found[0]


def _call_soon(loop: Loop, function: Callable[[], object]) -> bool:
    """Have *function* called on *loop* soon; False if the loop is gone, with whoever waited there."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
        return True
    return False
