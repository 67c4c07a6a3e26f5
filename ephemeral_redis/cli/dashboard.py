"""``ephemeral dashboard``: serves the page until it is told to end."""

from __future__ import annotations

import ipaddress
import socket
import sys
import webbrowser
from typing import TYPE_CHECKING

import uvicorn

from ephemeral_redis.dashboard import app
from ephemeral_redis.watch import BusWatch

from . import complain

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def serve(*, redis: str, namespace: str, host: str, port: int, allow_host: Sequence[str], opens_browser: bool) -> int:
    """Serve the dashboard of one namespace until SIGINT or SIGTERM, which then ends the process as it does others.

    A bus that cannot be reached is shown, not complained of: whoever starts this wants to see when it is back.

    Raises:
        ValueError: *redis* or *namespace* cannot be read.
        KeyboardInterrupt: SIGINT came, and all is closed.
    """
    watch = BusWatch.from_url(redis, namespace=namespace)
    application = app(watch, allowed_hosts=allowed_hosts(host, allow_host))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        return complain(
            f"cannot listen on {host} port {port}: {error.strerror}; --host and --port choose another place"
        )
    with listener:
        port = listener.getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        print(f"{url} shows {namespace} at {watch.address}; Ctrl-C ends it", flush=True)  # noqa: T201 - said to the user
        if not is_loopback(host):
            print("ephemeral: anybody who can reach it may look: it knows no users", file=sys.stderr)  # noqa: T201 - as above
        if opens_browser:
            webbrowser.open(url)
        # Streams end within a second by themselves; three are for a browser that no longer reads.
        config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=3)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on *host*."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(host: str, more: Sequence[str]) -> list[str] | None:
    """Return by which names a browser may ask; None: by any.

    On loopback only its own: a web page from elsewhere could else have its name mean this machine, and read along.
    """
    if not more and not is_loopback(host):
        return None
    return [host, *LOOPBACK_NAMES, *more]
