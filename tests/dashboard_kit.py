"""Pictures made by hand, and a source that shows what a test tells it to."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio

from ephemeral import SignalEvent
from ephemeral_redis.watch.picture import (
    Change,
    FleetPicture,
    GroupPicture,
    RungPicture,
    ScopeRate,
    ServerPicture,
    WorkerPicture,
)

NOW = 1_764_443_400.0
WHO = {name: f"{number:016x}" for number, name in enumerate(["api-1", "api-2", "api-3"], 0xA1)}


def rung(priority, state="up", *, group="default", **fields):
    prefix = "" if group == "default" else f"{group}."
    return RungPicture(processor=f"{prefix}pri{priority}", priority=priority, state=state, **fields)


def group(*rungs, name="default", **fields):
    route = next((one.processor for one in rungs if one.state == "up"), None)
    counters = dict.fromkeys(["pending", "active", "completed", "failed", "cancelled", "abandoned", "undelivered"], 0)
    return GroupPicture(**{"group": name, "rungs": rungs, "route": route, "workers": 3, **counters, **fields})


def worker(called, /, *, at=NOW, **fields):
    counters = dict.fromkeys(
        ["raised", "sent", "dropped", "outbox", "remote", "missed", "undecodable", "reconnects", "pending", "active"], 0
    )
    known = {
        "origin": WHO.get(called, called.encode().hex()[:16].ljust(16, "0")),
        "name": called,
        "version": "0.1.0",
        "python": "3.11.7",
        "started": at - 7200,
        "told": at - 1,
        "is_degraded": False,
        "degraded_seconds": 0.0,
        "lag": 0.002,
    }
    return WorkerPicture(**{**counters, **known, **fields})


def fleet(*groups, at=NOW, **fields):
    known = {
        "namespace": "shop",
        "at": at,
        "read_at": at,
        "problem": None,
        "groups": groups or (group(rung(1), rung(2)),),
        "workers": tuple(worker(name, at=at) for name in WHO),
        "scopes": (ScopeRate(scope="order", count=120, within=10.0),),
        "scopes_known": 1,
        "changes": (),
        "server": ServerPicture(kind="redis", version="7.0.15", latency=0.0004),
    }
    return FleetPicture(**{**known, **fields})


def outage(*, at=NOW, began=4 * 60 + 11):
    """The first of three rungs is down; api-2 noticed, api-3 has probed in vain."""
    since = at - began
    primary = rung(
        1, "down", since=since, epoch=int(since * 1000), by=WHO["api-2"], failures=3, failed_probes=2, next_probe=at + 4
    )
    changes = [
        Change(
            at=at - 1, kind="probe failed", processor="pri1", epoch=int(since * 1000), by=WHO["api-3"], is_edge=False
        ),
        Change(at=since, kind="down", processor="pri1", epoch=int(since * 1000), by=WHO["api-2"], is_edge=True),
    ]
    ladder = group(primary, rung(2), rung(3), pending=340, active=12, completed=10_203, failed=3)
    return fleet(ladder, at=at, changes=tuple(changes))


def event(signal, **fields):
    known = {"operation_id": 0, "key": None, "timestamp": NOW, "payload": None, "propagation": None, "origin": "a1" * 8}
    return SignalEvent(signal=signal, **{**known, **fields})


class HandSource:
    """Gives what `show` and `tell` are given, to whoever reads; counts the readings."""

    def __init__(self, picture=None):
        self.picture = picture or fleet()
        self.readings = []
        self._streams = {"pictures": set(), "signals": set()}

    def show(self, picture):
        self.picture = picture
        self._send("pictures", picture)

    def tell(self, *events):
        self._send("signals", events)

    def is_read(self, what):
        return bool(self._streams[what])

    def _send(self, what, value):
        for stream in self._streams[what]:
            stream.send_nowait(value)

    @asynccontextmanager
    async def _read(self, what):
        send, receive = anyio.create_memory_object_stream(float("inf"))
        self.readings.append(what)
        self._streams[what].add(send)
        with send, receive:
            if what == "pictures":
                send.send_nowait(self.picture)
            try:
                yield receive
            finally:
                self._streams[what].discard(send)

    def pictures(self):
        return self._read("pictures")

    def signals(self):
        return self._read("signals")


def older(picture, seconds):
    """The same, with a bus that cannot be read for so long."""
    return replace(picture, at=picture.at + seconds, problem="ConnectionError: refused")


class Visit:
    """One request as a browser makes it, its answer read piece by piece; leaving the block is leaving the page."""

    def __init__(self, pieces):
        self.status = None
        self.headers = {}
        self.is_over = False
        self.answered = anyio.Event()
        self._pieces = pieces
        self._text = ""

    def said(self):
        """Return what has come so far and was not read yet."""
        with suppress(anyio.WouldBlock):
            while True:
                self._text += self._pieces.receive_nowait().decode()
        return self._text

    async def next(self, name=None):
        """Return the data of the next event, or of the next one of that name."""
        while True:
            while "\n\n" not in self._text:
                self._text += (await self._pieces.receive()).decode()
            block, _, self._text = self._text.partition("\n\n")
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields and name in {None, fields["event"]}:
                return json.loads(fields["data"])


@asynccontextmanager
async def visit(application, path, *, method="GET", host="localhost", query="", room=1000):
    """Visit *path*; *room*: how many pieces of the answer may be under way before the server has to wait."""
    send_piece, pieces = anyio.create_memory_object_stream(room)
    asked, left = anyio.Event(), anyio.Event()
    here = Visit(pieces)

    async def receive():
        if not asked.is_set():
            asked.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            here.status = message["status"]
            here.answered.set()
            here.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            here.is_over = not message.get("more_body", False)
            if message["body"]:
                await send_piece.send(message["body"])

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
    scope |= {"root_path": "", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope |= {"headers": [(b"host", host.encode())], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}

    async def ask():
        async with send_piece:
            await application(scope, receive, send)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        with pieces:
            yield here
            left.set()
            # Whoever writes to a page that was left finds nobody to read: that is let go on, and must end.
            with anyio.CancelScope(), anyio.move_on_after(5):
                async for _ in pieces:
                    pass
