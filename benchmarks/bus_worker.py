"""A process of the bus's benchmarks: fails on request, or raises signals at a rate."""

from __future__ import annotations

import sys
import time

import anyio

from ephemeral import HealthOptions, SignalSink
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral_redis import RedisSignalBackend

RULES = HealthRules.of(HealthOptions(), failure_threshold=1, probe_interval=0.001, timeout=30.0)


async def fail_on_request(sink):
    """Fail ``pri1`` at each ``go``, and say when: the monotonic clock is one for all processes of a machine."""
    store, now = SharedHealthStore(sink.backend), current_loop().now
    store.register("pri1", RULES, now())
    async with sink.listen("go") as requests:
        sink.raise_signal("ready")
        async for _ in requests:
            while not store.record("pri1").is_up:  # noqa: ASYNC110  until the news are here
                await anyio.sleep(0.0005)
            failed_at = time.monotonic()
            store.failed("pri1", store.record("pri1").epoch, now())
            sink.raise_signal("failed.at", payload=failed_at)


async def raise_at_rate(sink, rate):
    """Raise *rate* signals a second in slices of 10 ms, under 50 scopes; the event loop rests between."""
    began_at, count = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began_at) * rate)
        while count < due:
            sink.raise_signal(f"load.{count % 5}:part{count % 50}", payload=time.monotonic())
            count += 1
        await anyio.sleep(0.01)


async def main(url, namespace, rate, role):
    backend = RedisSignalBackend.from_url(url, namespace=namespace, mirror=None if role == "load" else "go")
    async with SignalSink(backend=backend) as sink, anyio.create_task_group() as tasks:
        if int(rate):
            tasks.start_soon(raise_at_rate, sink, int(rate))
        if role == "fail":
            tasks.start_soon(fail_on_request, sink)
        else:
            sink.raise_signal("ready")


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
