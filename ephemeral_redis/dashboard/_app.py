"""The page as an ASGI application."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ephemeral import SignalSink, matches_pattern
from ephemeral.abc import ITEM_SIGNALS
from ephemeral_redis.watch.source import watch_sink

from ._frames import Backlog, frame, picture_frame
from ._history import RateHistory
from ._relay import Relay
from ._stream import EventStream, Viewer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ephemeral import SignalEvent
    from ephemeral_redis.watch.picture import FleetPicture
    from ephemeral_redis.watch.source import FleetWatch

STATIC = Path(__file__).parent / "static"

SIGNALS_PAUSE = 0.5
"""Seconds between two lots of signals: faster than an eye can follow, and the page has to draw them all."""

HEADERS = {
    # Whatever a name holds, nothing but the page's own files is run, drawn or asked.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def app(source: SignalSink | FleetWatch, *, allowed_hosts: Collection[str] | None = None) -> Starlette:
    """Return a page that shows *source*: an ASGI application to serve, or to mount under any path.

    It reads only while somebody looks, once for all who do; served by itself it reads from its start on, so that the
    first who looks sees the minutes before. It can change nothing, and knows no users: put it where only those come who
    may see the names and payloads of signals. Runs on one event loop: on asyncio, and where no server is read on trio.

    Args:
        source: A sink: what its bus shows of all its workers, or without a backend this process; or any other source.
        allowed_hosts: Names by which a browser may ask for it, without ports; None: any. Where it listens on loopback
            alone, naming ``localhost`` and the address keeps other web pages from reading it by way of a name of theirs
            that suddenly means this machine.

    Raises:
        TypeError: *source* is neither a sink nor a source.
    """
    if isinstance(source, SignalSink):
        source = watch_sink(source)
    elif not hasattr(source, "pictures"):
        raise TypeError(f"a dashboard shows a SignalSink or a FleetWatch, not {type(source).__name__}")
    dashboard = _Dashboard(source)
    return Starlette(
        routes=[
            Route("/pictures", dashboard.pictures),
            Route("/signals", dashboard.signals),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ],
        middleware=[Middleware(_Guard, allowed_hosts=allowed_hosts)],
        lifespan=dashboard.lifespan,
    )


class _Dashboard:
    """What the application answers, and what it remembers for that.

    Args:
        source: What it shows.
    """

    def __init__(self, source: FleetWatch) -> None:
        self._source = source
        self._history = RateHistory()
        self._latest: bytes = b""
        self._pictures = Relay(self._read_pictures)
        self._signals = Relay(source.signals)

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """Read from the start of the server to its end; a mounted application is not told of either."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pictures.follow, _ignore)
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _read_pictures(self) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Turn each picture into what is sent once, however many look."""

        async def frames(pictures: AsyncIterator[FleetPicture]) -> AsyncIterator[bytes]:
            async for picture in pictures:
                self._history.add(picture)
                self._latest = picture_frame(picture)
                yield self._latest

        try:
            async with self._source.pictures() as pictures:
                yield frames(pictures)
        finally:
            self._latest = b""  # from here on it only grows old

    async def pictures(self, _request: Request) -> EventStream:
        """Send the rates of the last minutes, then pictures."""
        viewer = Viewer()

        async def follow() -> None:
            if self._latest:
                viewer.offer(lambda: self._latest)
            await self._pictures.follow(lambda sent: viewer.offer(lambda: sent))

        return EventStream(viewer, follow, frame("rates", self._history.as_json()))

    async def signals(self, request: Request) -> EventStream:
        """Send the signals that match ``?pattern=``, without items if ``items=0``; as many as an eye can follow."""
        pattern = request.query_params.get("pattern", "*")
        try:
            matches_pattern("", pattern)
        except ValueError as mistake:
            # As an event: a browser shows a stream's reader no other answer.
            return EventStream(Viewer(), anyio.sleep_forever, frame("refused", str(mistake)))
        left_out = ITEM_SIGNALS if request.query_params.get("items") == "0" else ()
        backlog = Backlog(lambda name: matches_pattern(name, pattern) and not name.startswith(left_out))
        viewer = Viewer(pause=SIGNALS_PAUSE)

        def take(events: Sequence[SignalEvent]) -> None:
            if backlog.add(events):
                viewer.offer(backlog.take)

        async def follow() -> None:
            await self._signals.follow(take)

        return EventStream(viewer, follow)


class _Guard:
    """Answers only those who ask for one of *allowed_hosts*, and tells browsers to run nothing but the page's files."""

    def __init__(self, application: ASGIApp, allowed_hosts: Collection[str] | None) -> None:
        self._app = application
        self._allowed = None if allowed_hosts is None else {host.lower() for host in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._app if self._is_allowed(scope) else _MISDIRECTED
        await answer(scope, receive, send_guarded)

    def _is_allowed(self, scope: Scope) -> bool:
        if self._allowed is None:
            return True
        try:
            host = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname
        except ValueError:
            return False
        return host in self._allowed


_MISDIRECTED = PlainTextResponse("This dashboard is not to be asked for by that name.\n", status_code=421)


def _ignore(_frame: bytes) -> None:
    """Look at nothing: reading goes on for those who look later."""
