"""An application as servers load it: ``WSGI`` and ``ASGI``, over a sink that is made where the module is imported.

``BUS_URL`` is the bus. ``OPENED`` is where the sink is opened: ``import`` (before any fork, if the server preloads) or
``lifespan``. Each request raises as many signals as its query says, and answers with what this worker knows.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend

sink = SignalSink(10_000, backend=RedisSignalBackend.from_url(os.environ["BUS_URL"], namespace="web"))
heard = {}


def hear(event):
    if event.origin != sink.origin:
        heard[event.origin] = threading.current_thread().name


sink.subscribe(hear, "asked")
if os.environ["OPENED"] == "import":
    stack = contextlib.ExitStack()
    stack.enter_context(sink)
    # Run by each process that ends well: the one that imported this, and every worker forked from it.
    atexit.register(stack.close)
    sink.raise_signal("imported", str(os.getpid()))


def answer(count):
    for number in range(count):
        sink.raise_signal("asked", str(number))
    return json.dumps({"pid": os.getpid(), "origin": sink.origin, "heard": heard}).encode()


def WSGI(environ, start_response):
    body = answer(int(environ["QUERY_STRING"]))
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def ASGI(scope, receive, send):
    if scope["type"] == "lifespan":
        async with sink if os.environ["OPENED"] == "lifespan" else contextlib.nullcontext():
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = answer(int(scope["query_string"]))
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})
