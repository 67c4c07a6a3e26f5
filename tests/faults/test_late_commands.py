"""What a worker has given up on and said anew arrives after all, as a network delivers late: it must change nothing."""

from __future__ import annotations

import anyio
import pytest

from ephemeral import HealthOptions, SignalSink
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral_redis import RedisSignalBackend

from .kit.proxy import Proxy, Weather

pytestmark = [pytest.mark.real_time, pytest.mark.server]

WINDOW = 1.0


@pytest.fixture
def proxy(server):
    with Proxy(server.url) as proxy:
        yield proxy


async def wait_until(condition):
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110  until the news are here
            await anyio.sleep(0.005)


def opened(proxy):
    return SignalSink(backend=RedisSignalBackend.from_url(proxy.url, namespace="late", require=True))


async def joined_store(sink):
    rules = HealthRules.of(HealthOptions(), failure_threshold=3, failure_window=WINDOW, timeout=1.0)
    store, now = SharedHealthStore(sink.backend), current_loop().now
    for processor in ("pri1", "pri2", "pri3"):
        store.register(processor, rules, now())
    # The server knows the scripts from now on: a call that comes late to one that does not is refused for that alone.
    store.failed("pri2", 0, now())
    store.isolate("pri3", now())
    await wait_until(lambda: sink.statistics().bus.transitions == sink.statistics().bus.reports == 1)
    return store, now


async def give_up_on_what_is_on_its_way(proxy, sink, act, meanwhile=lambda: None, seconds=0.0):
    """Have what *act* sends held on its way, be given up, and the bus be reached again by another way."""
    proxy.strand()
    act()
    # Nobody else is answered either, until it is given up.
    proxy.weather = Weather(is_refusing=True)
    await wait_until(lambda: sink.is_degraded)
    meanwhile()
    await anyio.sleep(seconds)
    proxy.weather = Weather()
    await wait_until(lambda: not sink.is_degraded)


async def has_arrived(proxy, sink):
    """Deliver what was held, and return once the server has heard it all and the sink has heard of it."""
    links = [link for link in proxy.links if link.is_stranded]
    proxy.land()
    await wait_until(lambda: not set(links) & set(proxy.links))
    assert await sink.flush(5)
    await anyio.sleep(0.1)


async def test_a_decision_by_hand_that_was_taken_back_meanwhile_stays_taken_back(proxy):
    async with opened(proxy) as sink:
        store, now = await joined_store(sink)
        await give_up_on_what_is_on_its_way(
            proxy, sink, lambda: store.isolate("pri1", now()), meanwhile=lambda: store.reset("pri1", now())
        )
        assert store.record("pri1").is_up
        await has_arrived(proxy, sink)
        assert store.record("pri1").is_up


async def test_failures_that_are_told_late_count_when_they_happened(proxy):
    async with opened(proxy) as sink:
        store, now = await joined_store(sink)

        def fail():
            for _ in range(3):
                store.failed("pri1", 0, now())

        await give_up_on_what_is_on_its_way(proxy, sink, fail, seconds=WINDOW)
        await wait_until(lambda: store.record("pri1").is_up)  # it was down for this worker, while that was alone
        await has_arrived(proxy, sink)
        assert store.record("pri1").is_up
        assert store.failures("pri1", now()) == 0


async def test_a_signal_that_is_told_late_is_dated_by_when_it_was_raised(proxy):
    async with opened(proxy) as sink, opened(proxy) as other:
        proxy.weather = Weather(is_silent=True)
        sink.raise_signal("a")
        await wait_until(lambda: sink.is_degraded)
        sink.raise_signal("b")
        await anyio.sleep(2)
        # Now all arrives at once: what was given up, and then, on another connection, what is said anew.
        proxy.weather = Weather()
        await wait_until(lambda: other.detect("b"))
        for name in ("a", "b"):
            ours, theirs = sink.sense(name), other.sense(name)
            # A call may be under way for a second; what was given up would be three late.
            assert [event.timestamp for event in theirs] == pytest.approx([event.timestamp for event in ours], abs=1.0)
            assert await sink.shared_count(name) == 1


async def test_failures_that_are_too_old_to_count_keep_nobody_from_the_bus(proxy):
    async with opened(proxy) as sink:
        store, now = await joined_store(sink)
        proxy.weather = Weather(is_refusing=True)
        proxy.cut()
        store.failed("pri1", 0, now())
        await anyio.sleep(WINDOW + 0.1)
        assert sink.is_degraded
        proxy.weather = Weather()
        await wait_until(lambda: not sink.is_degraded)
