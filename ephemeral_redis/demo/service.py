"""One of the demo's HTTP services: ``python -m ephemeral_redis.demo.service --name primary --ledger FILE``.

``PUT /widgets/{widget}`` does a widget once, however often it is asked; ``GET /health`` says that the service is there.
When it listens it prints one JSON line (``port``, ``listening_at``). With ``--with-parent`` it ends with whoever
started it, whatever ended that one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from .child import announce, end_with_parent, listen
from .ledger import Ledger

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

REPLY_SHARE = 0.75
"""How much of a request's time lies between its write and its reply. High, so that a kill usually leaves work that was
done and never confirmed: the case that makes a client send it again."""


def create_app(name: str, ledger: Ledger, latency: Callable[[], float]) -> Starlette:
    """Build the service.

    Args:
        name: Whom the ledger names for what is done here.
        ledger: Where it is done.
        latency: Gives the seconds that the next request is going to take.
    """

    async def put_widget(request: Request) -> JSONResponse:
        widget: str = request.path_params["widget"]
        seconds = latency()
        await anyio.sleep(seconds * (1 - REPLY_SHARE))
        is_new = ledger.record(widget, name)
        await anyio.sleep(seconds * REPLY_SHARE)
        return JSONResponse({"widget": widget, "service": name, "is_repeat": not is_new})

    async def get_health(_request: Request) -> JSONResponse:
        return JSONResponse({"service": name})

    return Starlette(routes=[Route("/widgets/{widget}", put_widget, methods=["PUT"]), Route("/health", get_health)])


def serve(name: str, ledger: Ledger, listener: socket.socket, *, latency: Callable[[], float]) -> None:
    """Serve on *listener* until SIGINT or SIGTERM."""
    config = uvicorn.Config(create_app(name, ledger, latency), log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the service as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m ephemeral_redis.demo.service", description=__doc__)
    parser.add_argument("--name", required=True, help="whom the ledger names")
    parser.add_argument("--ledger", required=True, type=Path, help="the SQLite file")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0: a free port")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.02, 0.06), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the latencies")
    parser.add_argument("--create", action="store_true", help="make the ledger unless it is there")
    parser.add_argument("--frozen", action="store_true", help="once it listens, hang until SIGCONT")
    parser.add_argument("--with-parent", action="store_true", help="end when stdin, a pipe, is closed")
    given = parser.parse_args(arguments)
    if given.with_parent:
        end_with_parent()
    jitter = random.Random(given.seed)
    if given.create and not given.ledger.exists():
        Ledger.create(given.ledger).close()
    with Ledger(given.ledger) as ledger, listen(given.host, given.port) as listener:
        announce(listener)
        if given.frozen:
            # The kernel goes on taking connections that nobody answers: a service that hangs, not one that is gone.
            os.kill(os.getpid(), signal.SIGSTOP)
        serve(given.name, ledger, listener, latency=lambda: jitter.uniform(*given.latency))


if __name__ == "__main__":
    main()
