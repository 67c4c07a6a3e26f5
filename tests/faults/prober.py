"""One worker process whose service is somewhere else: it works all the time, and probes while that is down.

The service is asked one line over TCP, ``work PID`` or ``probe PID``, and answers ``yes`` or ``no``.
"""

from __future__ import annotations

import os
import sys

import anyio

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend

OPTIONS = {"failure_threshold": 3, "probe_interval": 0.2, "timeout": 0.5, "max_concurrency": 1, "reroute_failed": True}


async def main(url, namespace, port):
    async def ask(what):
        async with await anyio.connect_tcp("127.0.0.1", int(port)) as stream:
            await stream.send(f"{what} {os.getpid()}\n".encode())
            return await stream.receive() == b"yes\n"

    async def work(item):
        return await ask("work")

    async def probe():
        return await ask("probe")

    async def stand_in(item):
        return item

    async with (
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink,
        PriorityProcessorAtom(1, work, sink, probe=probe, **OPTIONS) as primary,
        PriorityProcessorAtom(2, stand_in, sink, **OPTIONS),
    ):
        print("ready", flush=True)
        while True:
            await primary.enqueue("w")
            await anyio.sleep(0.01)


anyio.run(main, *sys.argv[1:])
