"""What a deployment must be able to do, whatever the way to its server."""

from __future__ import annotations

import re
from pathlib import Path

import anyio

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend

DOCS = (Path(__file__).parents[3] / "docs" / "bus.md").read_text(encoding="utf-8")


def rights(name):
    """Return the server's arguments that make a user with the rights that docs/bus.md names; its password: secret."""
    (line,) = re.findall(rf"^ACL SETUSER {name} (.+)$", DOCS, re.MULTILINE)
    return ["--user", name, *line.split()]


async def broken(item):
    raise ConnectionError(item)


async def sound(item):
    return item


def works(url, namespace="shop", **options):
    """Use all of the bus that a worker uses, through two sinks, and fail if any of it does not work."""
    anyio.run(lambda: _use(url, namespace, options))


async def _use(url, namespace, options):

    def sink():
        return SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace, **options))

    def rung(process, of, priority):
        return PriorityProcessorAtom(priority, process, of, failure_threshold=1, probe_interval=60, reroute_failed=True)

    with anyio.fail_after(60):
        async with (
            sink() as one,
            sink() as two,
            rung(broken, one, 1) as first,
            rung(sound, one, 2),
            rung(broken, two, 1) as other,
            rung(sound, two, 2),
        ):
            # Not at the first try on a machine that others share: so long a handshake may take.
            while one.is_degraded or two.is_degraded:  # noqa: ASYNC110  as below
                await anyio.sleep(0.01)
            async with two.listen("order.*") as events:
                one.raise_signal("order.placed:eu", "c1", payload={"n": [1, b"\xff"]})
                assert (await anext(events)).payload == {"n": [1, b"\xff"]}
            assert await two.shared_count("order.placed") == 1
            assert await first.call("x") == "x"
            while other.is_healthy:  # noqa: ASYNC110  until the news are here
                await anyio.sleep(0.001)
            for each in (one, two):
                assert await each.flush(5)
                bus = each.statistics().bus
                assert (bus.dropped, bus.missed, bus.undecodable) == (0, 0, 0)
