"""The thread that holds everything that talks to Redis, with an event loop of its own.

A host's loop that is busy, a trio loop, or no loop at all: the bus does not notice. And a cancellation in user code
never reaches a connection.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import anyio

from ephemeral.abc import Loop, current_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Portal:
    """Runs one async function in a thread, and functions that other threads hand in, in their order.

    Args:
        main: What to run; the thread ends with it.
    """

    def __init__(self, main: Callable[[], Awaitable[None]]) -> None:
        self._main = main
        self._calls: deque[Callable[[], object]] = deque()
        self._loop: Loop | None = None
        self._is_scheduled = False
        # Daemon: a process that forgets to close its sink must still be able to end.
        self._thread = threading.Thread(target=self._run, name="ephemeral-bus", daemon=True)

    def start(self) -> None:
        """Start the thread; what was handed in before runs first."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, for at most *timeout* seconds."""
        self._thread.join(timeout)

    def call(self, function: Callable[[], object]) -> None:
        """Have *function* called on the portal's thread soon. From any thread; never blocks."""
        self._calls.append(function)
        loop = self._loop
        if loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            try:
                loop.call_soon_threadsafe(self._run_calls)
            except RuntimeError:
                self._end()

    def _run(self) -> None:
        try:
            anyio.run(self._start_main, backend="asyncio")  # redis-py's asynchronous client runs on nothing else
        finally:
            self._end()

    def _end(self) -> None:
        """The loop has ended: nobody is left to be told, now or later."""
        self._is_scheduled = False
        self._calls.clear()

    async def _start_main(self) -> None:
        self._loop = current_loop()
        self._run_calls()
        await self._main()

    def _run_calls(self) -> None:
        # First, so that what is appended from here on is scheduled again.
        self._is_scheduled = False
        while self._calls:
            self._calls.popleft()()
