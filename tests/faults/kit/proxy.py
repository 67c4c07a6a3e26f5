"""A piece of network between workers and their server, as bad as a test wants it to be."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from dataclasses import dataclass

CHUNK = 65_536
WORKERS_SIDE, SERVERS_SIDE = 0, 1
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Weather:
    """What becomes of what is sent; may be changed at any time, from any thread.

    Attributes:
        up: Seconds that bytes to the server take.
        down: Seconds that bytes to the workers take.
        jitter: Most seconds more, by chance; the order of bytes stays.
        rate: Bytes a second that pass each way, in each connection; None: all.
        is_silent: Nothing passes, and nobody is told: what is sent is held, and passes once this is over.
        is_lost: The same, but what is sent meanwhile is lost, and its connection with it once this is over.
        is_refusing: New connections are reset at once.
    """

    up: float = 0.0
    down: float = 0.0
    jitter: float = 0.0
    rate: float | None = None
    is_silent: bool = False
    is_lost: bool = False
    is_refusing: bool = False


class Proxy:
    """Listens on a port and passes on to a server's unix socket. A context manager with a thread of its own.

    What it may be told, it may be told by any thread, and has done when the call returns.

    Args:
        url: The server behind it, ``unix://…``.
        host: Address of this machine to listen on.

    Attributes:
        weather: What becomes of what is sent.
        lost_replies: Replies that `lose_replies` has lost so far.
    """

    def __init__(self, url, *, host="127.0.0.1"):
        self._host = host
        self._path = url.removeprefix("unix://")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links = set()
        self._tasks = set()
        self._listener = None
        self._to_lose = []
        self.weather = Weather()
        self.lost_replies = 0

    def __enter__(self):
        self._listener = socket.create_server((self._host, 0), backlog=512)
        self._listener.setblocking(False)
        self._thread.start()
        self._loop.call_soon_threadsafe(lambda: self._spawn(self._accept()))
        return self

    def __exit__(self, *_):
        self._await(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    @property
    def url(self):
        """Where workers find the server."""
        return f"redis://{self._host}:{self._listener.getsockname()[1]}"

    @property
    def links(self):
        """The connections that are open now."""
        return tuple(self._links)

    def clear(self):
        """Let all pass again; connections that have lost bytes are reset."""
        self.weather = Weather()
        self.cut(lambda link: link.has_lost)

    def cut(self, which=lambda link: True):
        """Reset connections (RST), those that *which* holds for, and return how many."""

        async def cut():
            doomed = [link for link in self._links if which(link)]
            for link in doomed:
                link.task.cancel()
            await asyncio.gather(*(link.task for link in doomed), return_exceptions=True)
            return len(doomed)

        return self._await(cut())

    def strand(self, which=lambda link: True):
        """Hold what passes on open connections that *which* holds for, as on a long way round; new ones are as ever."""
        for link in self.links:
            link.is_stranded = which(link)

    def land(self):
        """Deliver what was held on stranded connections, though who sent it may have given up and gone."""
        for link in self.links:
            link.is_stranded = False

    def half_close(self, side):
        """Tell one side of each connection that the other will send no more (FIN), and go on passing its own words."""

        async def finish():
            for link in self._links:
                link.finish(side)

        self._await(finish())

    def lose_replies(self, count, command=b"EVALSHA"):
        """Let the server carry out the next *count* calls of *command*, and reset instead of passing the replies on."""
        self._to_lose = [command] * count

    def doom(self, data):
        """Whether the reply to these bytes is to be lost."""
        if self._to_lose and self._to_lose[0] in data:
            self._to_lose.pop()
            return True
        return False

    def _await(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def _spawn(self, coroutine):
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close(self):
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self):
        while True:
            near, _ = await self._loop.sock_accept(self._listener)
            if self.weather.is_refusing:
                _reset(near)
                continue
            link = Link(self, near)
            self._links.add(link)
            link.task = self._spawn(link.run(self._path))
            link.task.add_done_callback(lambda _, link=link: (link.close(), self._links.discard(link)))


class Link:
    """One connection.

    Attributes:
        task: Passes its bytes on; cancelled: it is reset.
        purpose: What its worker has named it for: ``command``, ``control``, ``signals``; empty before.
        has_lost: Whether bytes of it were lost.
        is_stranded: Whether what passes on it is held.
    """

    def __init__(self, proxy, near):
        near.setblocking(False)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far = socket.socket(socket.AF_UNIX)
        far.setblocking(False)
        self._proxy = proxy
        self._sockets = near, far
        self._is_doomed = False
        self.task = None
        self.purpose = ""
        self.has_lost = False
        self.is_stranded = False

    async def run(self, path):
        """Pass on both ways until one is cut or both are closed."""
        ways = []
        try:
            await asyncio.get_running_loop().sock_connect(self._sockets[SERVERS_SIDE], path)
            ways += [asyncio.create_task(self._pass_on(side)) for side in (WORKERS_SIDE, SERVERS_SIDE)]
            await asyncio.gather(*ways)
        except OSError:
            pass
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def close(self):
        """Close both ends; only once nobody waits on them, and though `run` was cancelled before it began."""
        for end in self._sockets:
            _reset(end)

    def finish(self, side):
        with contextlib.suppress(OSError):
            self._sockets[side].shutdown(socket.SHUT_WR)

    async def _pass_on(self, side):
        """Pass on what comes from *side*."""
        road = asyncio.Queue(64)
        loop = asyncio.get_running_loop()
        carrier = asyncio.create_task(self._carry(road, self._sockets[1 - side], 1 - side))
        try:
            while data := await loop.sock_recv(self._sockets[side], CHUNK):
                if side == WORKERS_SIDE:
                    self._heed(data)
                elif self._is_doomed:
                    self._proxy.lost_replies += 1
                    raise ConnectionResetError
                await road.put((time.monotonic(), data))
            await road.put((time.monotonic(), b""))
            await carrier
        finally:
            carrier.cancel()
            await asyncio.gather(carrier, return_exceptions=True)

    async def _carry(self, road, end, side):
        loop = asyncio.get_running_loop()
        while True:
            sent_at, data = await road.get()
            await self._travel(sent_at, len(data), side)
            weather = self._proxy.weather
            if weather.is_lost:
                self.has_lost = True
            elif self.has_lost:
                raise ConnectionResetError
            elif data:
                await loop.sock_sendall(end, data)
            else:
                self.finish(side)
                return

    async def _travel(self, sent_at, size, side):
        """Wait as long as *size* bytes for *side* take."""
        weather = self._proxy.weather
        delay = (weather.up if side == SERVERS_SIDE else weather.down) + random.uniform(0, weather.jitter)
        await asyncio.sleep(max(0.0, sent_at + delay - time.monotonic()))
        if weather.rate is not None:
            await asyncio.sleep(size / weather.rate)
        while self.is_stranded or self._proxy.weather.is_silent:  # noqa: ASYNC110  told by other threads, as a whole
            await asyncio.sleep(0.005)

    def _heed(self, data):
        for purpose in ("command", "control", "signals"):
            if not self.purpose and b"ephemeral-" + purpose.encode() in data:
                self.purpose = purpose
        self._is_doomed = self._is_doomed or self._proxy.doom(data)


def _reset(end):
    """Close at once; the other side is told that the connection is no more (RST), where its kind can say so."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
