"""The client: widgets through a ladder of two HTTP services. This is the part that shows how the library is used.

The ladder is the same in one process and in a fleet: whether its health is shared is the sink's business alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import httpx

from ephemeral import PriorityProcessorAtom, ProcessorHealth, SignalEvent, SignalSink

from . import timeline
from .board import Board, Rung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .timeline import Timeline

REQUEST_TIMEOUT = 2.0
"""Seconds; some thirty times the slowest reply, so that only a service that is gone or stuck reaches it. A prober that
dies holds its lease for that long and two seconds more."""
PROBE_INTERVAL = 0.5
"""Seconds between looks at a service that is down: about the most that the ladder adds to the service's own start."""
SLOTS = 16
"""Requests at once per service, several times what the default rate needs."""
MAX_ATTEMPTS = 100
"""Runs a widget may have before it is given up: three failures turn the ladder, so none comes near."""

SERVICES = {1: "primary", 2: "backup"}
"""Which service is on the rung of which priority."""

WidgetAtom: TypeAlias = PriorityProcessorAtom[str, None]
Probe: TypeAlias = Callable[[], Awaitable[bool]]


class Traffic:
    """A ladder at work, made by :func:`open_traffic`; for one event loop.

    Attributes:
        sent: The widgets accepted so far.
    """

    def __init__(self, sink: SignalSink, primary: WidgetAtom) -> None:
        self.sent: list[str] = []
        self._sink = sink
        self._primary = primary
        self._done: Counter[str] = Counter()
        self._signals: deque[str] = deque(maxlen=3)
        sink.subscribe(self._listen)

    async def send(self, widget: str) -> None:
        """Hand *widget* to whoever is healthy; waits, and is a cancellation point, only while the line is full."""
        await self._primary.enqueue(widget)
        self.sent.append(widget)

    async def drain(self) -> None:
        """Wait until nothing waits and nothing runs."""
        await self._primary.drain()

    async def wait_primary(self) -> None:
        """Wait until the primary is in use; at once if it is."""
        if not self._primary.is_healthy:
            await self._sink.wait_for(timeline.RESTORED)

    def board(self, *, elapsed: float, items: int) -> Board:
        """Return how things stand, *elapsed* seconds into a run of *items* widgets."""
        group = self._primary.statistics()
        return Board(
            elapsed=elapsed,
            items=items,
            sent=len(self.sent),
            done=group.total_completed,
            waiting=group.pending_count,
            running=group.active_count,
            rungs=tuple(map(self._rung, self._primary.get_ladder())),
            signals=tuple(self._signals),
        )

    def _rung(self, health: ProcessorHealth) -> Rung:
        return Rung(
            name=f"{health.processor} {SERVICES[health.priority]}",
            state=health.state,
            since=self._sink.now() - health.since.timestamp(),
            epoch=health.epoch,
            failures=health.failures,
            done=self._done[health.processor],
            rate=self._sink.count_recent_in_scope(f"processing.complete:{health.processor}", within=1.0),
        )

    def _listen(self, event: SignalEvent) -> None:
        self._signals.append(event.signal)
        if event.in_scope("processing.complete"):
            self._done[event.signal.split(":")[1]] += 1


@asynccontextmanager
async def open_traffic(primary_url: str, backup_url: str, history: Timeline) -> AsyncGenerator[Traffic]:
    """Open the ladder and its HTTP client; leaving drains the one and closes the other.

    Args:
        primary_url: Where the service of the first rung listens.
        backup_url: Where the service of the second rung listens.
        history: Is told when the ladder turns and how its probes end.
    """

    def note(event: SignalEvent) -> None:
        history.note(event.signal)

    async with (
        # Three signals a widget at most: room for the last second of a thousand a second.
        SignalSink(max_capacity=5_000) as sink,
        open_ladder(sink, primary_url, backup_url) as primary,
    ):
        sink.subscribe(note, "failover.*, probe.success:*, probe.failed:*")
        yield Traffic(sink, primary)


@asynccontextmanager
async def open_ladder(
    sink: SignalSink,
    primary_url: str,
    backup_url: str,
    *,
    watch: Callable[[str, Probe], Probe] = lambda _, probe: probe,
    drain_timeout: float = 30.0,
) -> AsyncGenerator[WidgetAtom]:
    """Open a ladder over two services and the HTTP client that it uses; leaving drains the one and closes the other.

    Args:
        sink: Where its signals go, and whose bus, if it has one, shares its health.
        primary_url: Where the service of the first rung listens.
        backup_url: Where the service of the second rung listens.
        watch: Is given each rung's name and probe, and returns the probe to use.
        drain_timeout: Seconds that leaving waits for accepted widgets.
    """
    async with (
        # trust_env: a proxy that is meant for the world must not be asked for a local service.
        httpx.AsyncClient(timeout=REQUEST_TIMEOUT, trust_env=False) as client,
        WidgetAtom(
            1,
            _putting(client, primary_url),
            sink,
            failure_threshold=3,
            probe=watch("pri1", _probing(client, primary_url)),
            probe_interval=PROBE_INTERVAL,
            timeout=REQUEST_TIMEOUT,
            max_concurrency=SLOTS,
            reroute_failed=True,
            max_attempts=MAX_ATTEMPTS,
            drain_timeout=drain_timeout,
        ) as primary,
        WidgetAtom(
            2,
            _putting(client, backup_url),
            sink,
            probe=watch("pri2", _probing(client, backup_url)),
            probe_interval=PROBE_INTERVAL,
            timeout=REQUEST_TIMEOUT,
            max_concurrency=SLOTS,
        ),
    ):
        yield primary


def _putting(client: httpx.AsyncClient, url: str) -> Callable[[str], Awaitable[None]]:
    async def put(widget: str) -> None:
        (await client.put(f"{url}/widgets/{widget}")).raise_for_status()

    return put


def _probing(client: httpx.AsyncClient, url: str) -> Probe:
    async def probe() -> bool:
        return (await client.get(f"{url}/health")).is_success

    return probe
