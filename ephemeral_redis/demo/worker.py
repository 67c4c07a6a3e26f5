"""One worker of a fleet: takes widgets over HTTP, does them through a ladder whose health the fleet shares.

``PUT /widgets/{widget}``, as at the services, accepts one (202), or says 503 when the line is full or closing; ``GET
/health`` tells how this worker sees the ladder, and what it has done. On SIGTERM or SIGINT it takes no more, does what
it has accepted, and ends.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from ephemeral import SignalSink
from ephemeral.abc import seconds
from ephemeral_redis import RedisSignalBackend

from .child import announce, listen
from .journal import Journal
from .traffic import open_ladder
from .witness import Witness

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from starlette.requests import Request

    from .traffic import WidgetAtom

HTTP_SECONDS = 2
"""Seconds that requests under way may take to end once the worker ends: each is answered within milliseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """What a worker is told.

    Attributes:
        name: What ``/health`` calls it.
        redis_url: Where the bus is.
        namespace: What keeps this fleet apart from others on the same server.
        primary_url: Where the service of the first rung listens.
        backup_url: Where the service of the second rung listens.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.
        stop_timeout: Seconds that accepted widgets have to be done once the worker ends.
        journal: A file for what it does and sees; None: none.

    Raises:
        ValueError: A URL is none of HTTP's, or a value is out of its range.
    """

    name: str
    redis_url: str
    namespace: str
    primary_url: str
    backup_url: str
    host: str
    port: int
    stop_timeout: float
    journal: Path | None = None

    def __post_init__(self) -> None:
        for name, url in (("primary", self.primary_url), ("backup", self.backup_url)):
            if urlsplit(url).scheme not in ("http", "https"):
                raise ValueError(f"the {name} must be an http or https URL, not {url!r}")
        seconds("stop_timeout", self.stop_timeout)


async def run_worker(options: WorkerOptions) -> int:
    """Run a worker until SIGTERM or SIGINT; in the main thread.

    A cancellation point throughout. Ends within ``HTTP_SECONDS``, the stop timeout and the two seconds that a sink
    takes to close.

    Returns:
        How many accepted widgets were not done in time.

    Raises:
        SignalBusError: The bus cannot be reached at the start. Later a worker goes on alone.
        OSError: It cannot listen where it should.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals, Journal(options.journal) as journal:
        witness = Witness(journal, lambda: sink.origin)
        backend = RedisSignalBackend.from_url(
            options.redis_url, namespace=options.namespace, name=options.name, require=True
        )
        async with SignalSink(max_capacity=5_000, backend=backend) as sink:
            async with open_ladder(
                sink,
                options.primary_url,
                options.backup_url,
                watch=witness.watch_probe,
                drain_timeout=options.stop_timeout,
            ) as primary:
                witness.begin(sink, primary)
                with listen(options.host, options.port) as listener:
                    announce(listener)
                    async with anyio.create_task_group() as tasks:
                        server = _Server(create_app(options.name, sink, primary, journal))
                        tasks.start_soon(server.serve, [listener])
                        async for _ in signals:
                            break
                        server.should_exit = True
            witness.end(sink)
            left = primary.statistics().total_undelivered
        journal.write("left")
    return left


class _Server(uvicorn.Server):
    """uvicorn in a process that hears its signals itself.

    Args:
        app: What to serve.
    """

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=HTTP_SECONDS
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none: uvicorn would raise them once more when it ends, before the widgets are done."""
        yield


def create_app(name: str, sink: SignalSink, primary: WidgetAtom, journal: Journal) -> Starlette:
    """Build the worker's HTTP side.

    Args:
        name: What ``/health`` calls it.
        sink: Whether its bus is reached is told in ``/health``.
        primary: Takes the widgets.
        journal: Is told of each that was accepted.
    """

    async def put_widget(request: Request) -> JSONResponse:
        widget: str = request.path_params["widget"]
        try:
            is_accepted = primary.try_enqueue(widget)
        except ValueError as mistake:
            return JSONResponse({"error": str(mistake)}, status_code=400)
        if not is_accepted:
            return JSONResponse({"error": "the line is full, or this worker ends"}, 503, {"Retry-After": "1"})
        journal.write("accepted", widget)
        return JSONResponse({"widget": widget, "worker": name}, status_code=202)

    async def get_health(_request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "worker": name,
                "bus": "away" if sink.is_degraded else "reached",
                "ladder": [_portable(asdict(health)) for health in primary.get_ladder()],
                "work": asdict(primary.statistics()),
            }
        )

    return Starlette(routes=[Route("/widgets/{widget}", put_widget, methods=["PUT"]), Route("/health", get_health)])


def _portable(health: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in health.items()}
