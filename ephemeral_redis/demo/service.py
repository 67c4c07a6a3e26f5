"""One of the demo's HTTP services: ``python -m ephemeral_redis.demo.service --name primary --ledger FILE``.

``PUT /widgets/{widget}`` does a widget once, however often it is asked; ``GET /health`` says that the service is there.
When it listens it prints one JSON line (``port``, ``listening_at``). It ends with whoever started it, whatever ended
that one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from .ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

REPLY_SHARE = 0.75
"""How much of a request's time lies between its write and its reply. High, so that a kill usually leaves work that was
done and never confirmed: the case that makes a client send it again."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def end_with_parent() -> None:
    """Make this process end when the one that started it does, even by SIGKILL.

    Stdin is a pipe that only the parent holds open, so its end is the parent's end, on every platform. On Linux the
    kernel is asked too: it needs no turn of this interpreter.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        # Not through sys.stdin: its lock, held by this thread, would turn an orderly exit into a crash.
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def listen(port: int) -> socket.socket:
    """Listen on loopback at *port*; 0 takes a free one.

    Raises:
        OSError: The port is in use.
    """
    # SO_REUSEADDR (set by create_server on POSIX): connections of a killed predecessor must not keep its port.
    return socket.create_server(("127.0.0.1", port), backlog=128)


def serve(name: str, ledger: Ledger, listener: socket.socket, *, latency: Callable[[], float]) -> None:
    """Serve on *listener* until SIGINT or SIGTERM."""
    config = uvicorn.Config(create_app(name, ledger, latency), log_level="error", access_log=False, lifespan="off")
    ready = {"port": listener.getsockname()[1], "listening_at": time.monotonic()}
    # Said before the loop runs: a request that comes in between waits in the backlog, it is not refused.
    print(json.dumps(ready), flush=True)  # noqa: T201 - the line is how the parent learns the port
    uvicorn.Server(config).run(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the service as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m ephemeral_redis.demo.service", description=__doc__)
    parser.add_argument("--name", required=True, help="whom the ledger names")
    parser.add_argument("--ledger", required=True, type=Path, help="the SQLite file")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0: a free port")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.02, 0.06), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the latencies")
    given = parser.parse_args(arguments)
    end_with_parent()
    jitter = random.Random(given.seed)
    with Ledger(given.ledger) as ledger, listen(given.port) as listener:
        serve(given.name, ledger, listener, latency=lambda: jitter.uniform(*given.latency))


if __name__ == "__main__":
    main()
