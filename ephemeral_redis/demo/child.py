"""What a process of the demo does to be found by whoever started it, and to end with it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def listen(host: str, port: int) -> socket.socket:
    """Listen at *host* and *port*; port 0 takes a free one.

    Raises:
        OSError: The port is in use, or the host is not of this machine.
    """
    # SO_REUSEADDR (set by create_server on POSIX): connections of a killed predecessor must not keep its port.
    listener = socket.create_server((host, port), backlog=128)
    # Inherited by what it accepts. asyncio sets it only on sockets that name their protocol, which these do not;
    # without it the second write of a reply waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def announce(listener: socket.socket) -> None:
    """Print one JSON line (``port``, ``listening_at``): how the parent learns where this process listens.

    Said before a loop serves: a request that comes in between waits in the backlog, it is not refused.
    """
    ready = {"port": listener.getsockname()[1], "listening_at": time.monotonic()}
    print(json.dumps(ready), flush=True)  # noqa: T201 - the line is the point
