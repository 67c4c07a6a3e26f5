"""Server-sent events as an ASGI response: bounded for each viewer, and at its end when the viewer or the server is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

TICK = 1.0
"""Seconds after which a stream that has nothing to say says so, and looks whether the server is stopping."""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx keeps a response back otherwise
    (b"x-content-type-options", b"nosniff"),
]

BEGINNING = b"retry: 1000\n\n"
"""Milliseconds after which a browser asks again when the stream has ended."""

NOTHING = b":\n\n"


class Viewer:
    """One browser's end of a stream: the one next event, replaced by whoever has a newer one.

    A browser that reads slowly holds up nobody and fills no memory: it gets what is newest when it is ready for more.

    Args:
        pause: Seconds between two events at least.
    """

    def __init__(self, *, pause: float = 0.0) -> None:
        self._pause = pause
        self._take: Callable[[], bytes] | None = None
        self._offered = anyio.Event()

    def offer(self, take: Callable[[], bytes]) -> None:
        """Have *take* called for the next event; on the loop's thread."""
        self._take = take
        self._offered.set()

    async def send_to(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what is offered, until cancelled or until the server stops."""
        while not server_is_stopping():
            with anyio.move_on_after(TICK):
                await self._offered.wait()
            take, self._take, self._offered = self._take, None, anyio.Event()
            if take is None:
                await send(NOTHING)
            else:
                await send(take())
                await anyio.sleep(self._pause)


class EventStream:
    """An ASGI response.

    Args:
        viewer: Gives the events.
        follow: Offers them to the viewer until cancelled. If it returns, the stream ends and the browser asks again.
        first: Events to begin with.
    """

    def __init__(self, viewer: Viewer, follow: Callable[[], Awaitable[None]], first: bytes = b"") -> None:
        self._viewer = viewer
        self._follow = follow
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the browser leaves or the server stops."""

        async def body(chunk: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

        async def until_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        async def follow() -> None:
            await self._follow()
            tasks.cancel_scope.cancel()

        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        if scope["method"] == "HEAD":
            await body(b"", more=False)
            return
        await body(BEGINNING + self._first)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_left)
            tasks.start_soon(follow)
            await self._viewer.send_to(body)
            tasks.cancel_scope.cancel()
        await body(b"", more=False)


def server_is_stopping() -> bool:
    """Whether the server around this application was told to stop, as far as one can tell; any thread.

    Servers wait for responses to end, and a stream of events has no end of its own. uvicorn's servers, which hear
    SIGTERM by a method of theirs, are asked. Others end their applications' tasks, after the time they are given.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
