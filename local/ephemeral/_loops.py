"""The seam to the event loop: the one module that tells asyncio from trio.

anyio covers both loops for everything that waits. Two things it does not offer cheaply are here: waking a loop from
another thread without blocking that thread (anyio's portal call takes about 100 µs, the loops' own call about 20 µs),
and a clock that is one bound method (anyio looks its backend up at each reading, about 0.4 µs).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import anyio.lowlevel


@dataclass(frozen=True, slots=True)
class Loop:
    """A running event loop, as far as other threads and hot paths need it.

    Attributes:
        now: Loop time in seconds, monotonic; callable from any thread, also after the loop has ended.
        call_soon_threadsafe: Runs a function of no arguments on the loop's thread soon; callable from any thread and
            from the loop's own. Raises ``RuntimeError`` once the loop is gone.
        thread_id: Identity of the thread the loop runs in.
    """

    now: Callable[[], float]
    call_soon_threadsafe: Callable[[Callable[[], object]], object]
    thread_id: int

    @property
    def runs_here(self) -> bool:
        """Whether the calling thread is the loop's own."""
        return threading.get_ident() == self.thread_id


def current_loop() -> Loop:
    """Return the loop that runs in this thread.

    Raises:
        anyio.NoEventLoopError: No loop runs here.
    """
    native: Any = anyio.lowlevel.current_token().native_token
    if hasattr(native, "call_soon_threadsafe"):  # asyncio, and loops that follow its interface
        asyncio: Any = sys.modules["asyncio"]  # loaded with the loop: to import it here would cost 30 ms
        # asyncio's own loops read this very clock, through one more Python call: 94 against 54 ns.
        kind = cast("type[object]", type(native))
        is_plain = getattr(kind, "time", None) is asyncio.BaseEventLoop.time
        return Loop(time.monotonic if is_plain else native.time, native.call_soon_threadsafe, threading.get_ident())
    trio: Any = sys.modules["trio"]  # it runs us, so it is loaded
    return Loop(trio.lowlevel.current_clock().current_time, _TrioWake(native), threading.get_ident())


@dataclass(frozen=True, slots=True)
class _TrioWake:
    """trio's own call, with asyncio's exception once the loop has ended."""

    token: Any

    def __call__(self, function: Callable[[], object]) -> None:
        trio: Any = sys.modules["trio"]
        try:
            self.token.run_sync_soon(function)
        except trio.RunFinishedError as error:
            raise RuntimeError("the event loop has ended") from error
