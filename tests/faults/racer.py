"""One worker process of the races: fails, probes and restores a row of processors together with its fellows."""

from __future__ import annotations

import os
import sys
import time

import anyio

offset = float(os.environ.get("CLOCK_OFF", "0"))
if offset:
    right = time.time
    time.time = lambda: right() + offset

from ephemeral import HealthOptions, SignalSink  # noqa: E402  after the clock was put wrong
from ephemeral._health import HealthRules  # noqa: E402
from ephemeral._loops import current_loop  # noqa: E402
from ephemeral._shared_health import SharedHealthStore  # noqa: E402
from ephemeral_redis import RedisSignalBackend  # noqa: E402

RULES = HealthRules.of(
    HealthOptions(),
    failure_threshold=3,
    probe_interval=0.001,
    timeout=float(os.environ.get("PROBE_SECONDS", "30")),
)


class Racer:
    def __init__(self, sink):
        self.sink = sink
        self.now = current_loop().now
        self.store = SharedHealthStore(sink.backend)
        self.store.on_change = self.tell

    def tell(self, change):
        if not change.is_own:
            return
        if change.went_down:
            self.sink.raise_signal("edge.down", change.after.processor)
        if change.came_up:
            self.sink.raise_signal("edge.up", change.after.processor)

    async def run_round(self, processor):
        self.store.register(processor, RULES, self.now())
        while True:
            record = self.store.record(processor)
            if record.epoch == 0:
                self.store.failed(processor, 0, self.now())
            elif record.is_up:
                return
            elif self.now() >= record.probe_due_at:
                await self.probe(processor)
            await anyio.sleep(0.001)

    async def probe(self, processor):
        lease = await self.store.acquire(processor, self.now())
        if lease is not None:
            self.sink.raise_signal("lease", processor)
            self.store.finish(lease, self.now(), is_good=True)

    async def hold(self, processor):
        """Take the lease and say so; never answer."""
        self.store.register(processor, RULES, self.now())
        while (await self.store.acquire(processor, self.now())) is None:  # noqa: ASYNC110  until the news are here
            await anyio.sleep(0.001)
        self.sink.raise_signal("held", processor)
        await anyio.sleep_forever()


async def main(url, namespace, rounds):
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink:
        racer = Racer(sink)
        async with sink.listen("go") as events:
            sink.raise_signal("ready")
            await anext(events)
        if rounds == "hold":
            await racer.hold("pri1")
        for number in range(int(rounds)):
            await racer.run_round(f"p{number}")
        await sink.flush(10)


anyio.run(main, *sys.argv[1:])
