"""A server that is full: it refuses, or it throws away what it likes."""

from __future__ import annotations

import anyio
import pytest
import redis

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend, _reader

from .kit.load import Load

pytestmark = [pytest.mark.real_time, pytest.mark.server]


def fill(client):
    """Leave the server no room at all, so that it refuses whatever needs more."""
    client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)


def make_room(client):
    client.config_set("maxmemory", 0)


def test_a_full_server_under_load_delays_and_loses_nothing(server, joined, until, tried):
    client = redis.Redis.from_url(server.url)
    with joined(server.url, 3) as sinks:
        with Load(sinks, 500) as load:
            load.go_on(0.3)
            fill(client)
            load.until(lambda: all(sink.is_degraded for sink in sinks))
            load.go_on(1.0)
            waiting = [sink.statistics().bus.outbox for sink in sinks]
            make_room(client)
            load.until(lambda: not any(sink.is_degraded for sink in sinks))
            load.go_on(0.2)
        wrong, figures = load.settle(client, until)
    assert wrong == []
    assert min(waiting) > 300
    assert load.slowest < 0.5  # one that waited for the server would take a second
    assert figures["received"] == figures["expected"]
    tried("Server", "full (noeviction) for 1 s, 3 sinks, 500/s each", **figures)


def test_a_server_that_stays_full_costs_what_the_outbox_cannot_hold_and_says_how_much(server, joined, until, tried):
    client = redis.Redis.from_url(server.url)
    with joined(server.url, 2, max_outbox=200) as sinks:
        with Load(sinks, 1000) as load:
            load.go_on(0.2)
            fill(client)
            load.until(lambda: all(sink.statistics().bus.dropped > 100 for sink in sinks))
            make_room(client)
            load.until(lambda: not any(sink.is_degraded for sink in sinks))
        wrong, figures = load.settle(client, until)
        dropped = sum(sink.statistics().bus.dropped for sink in sinks)
    assert wrong == []
    # With two sinks each loss has one witness.
    assert figures["reported"] == dropped > 200
    assert figures["counted"] == figures["raised"] - dropped
    tried("Server", "full until outboxes of 200 overflow, 2 sinks, 1 000/s each", **figures)


@pytest.mark.long
def test_a_server_that_fills_up_with_signals_sends_on_as_they_age_out(server, joined, until, tried):
    client = redis.Redis.from_url(server.url)
    client.config_set("maxmemory", "5mb")
    with joined(server.url, 2, capacity=100_000, retention=5.0) as sinks:
        with Load(sinks, 1000, payload="x" * 500) as load:
            load.until(lambda: any(sink.is_degraded for sink in sinks), 30)
            load.go_on(12.0)
            make_room(client)
            load.until(lambda: not any(sink.is_degraded for sink in sinks))
        wrong, figures = load.settle(client, until, forgot=True)  # it keeps what it counts for 5 s
        lost = sum(sink.statistics().bus.dropped + sink.statistics().bus.stale for sink in sinks)
        came_back = min(sink.statistics().bus.reconnects for sink in sinks)
    assert wrong == []
    # Also what aged out on the server before a sink that it refused came back to read it.
    assert figures["reported"] >= lost > 0
    assert came_back > 1
    tried("Server", "maxmemory 5 MB, noeviction, retention 5 s, 2 sinks, 1 000/s of 500 B each", **figures)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_what_an_eviction_policy_throws_away_is_counted_by_who_had_not_read_it(server, joined, until, tried, policy):
    client = redis.Redis.from_url(server.url)
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", "3mb")
    with joined(server.url, 3) as sinks:
        with Load(sinks, 500, payload="x" * 300) as load:
            load.until(lambda: client.info("stats")["evicted_keys"] > 100, 60)
            make_room(client)
            load.go_on(0.3)
        wrong, figures = load.settle(client, until, forgot=True)
    assert wrong == []
    assert figures["counted"] < figures["raised"]
    tried("Server", f"maxmemory 3 MB, {policy}, until 100 keys are evicted, 3 sinks, 500/s of 300 B each", **figures)


async def do(item):
    return item


async def fail(item):
    raise ConnectionError(item)


async def eventually(condition, seconds=10.0):
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  news of other threads and processes
            await anyio.sleep(0.005)


def joined_async(server, namespace):
    return SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace=namespace))


async def test_what_a_full_server_refuses_of_health_holds_here_and_everywhere_once_there_is_room(server):
    client = redis.Redis.from_url(server.url)
    async with (
        joined_async(server, "trip") as one,
        joined_async(server, "trip") as two,
        PriorityProcessorAtom(1, fail, one, failure_threshold=3, probe_interval=60, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, do, one),
        PriorityProcessorAtom(1, fail, two, failure_threshold=3, probe_interval=60, reroute_failed=True) as elsewhere,
        PriorityProcessorAtom(2, do, two),
    ):
        edges = []
        for sink in (one, two):
            sink.subscribe(
                lambda event, sink=sink: edges.append((sink, event.payload["local"])), "failover.requested:*"
            )
        fill(client)
        await primary.enqueue_many(range(10))
        await primary.drain()
        await eventually(lambda: one.is_degraded and not primary.is_healthy)
        assert primary.get_health().is_local
        assert elsewhere.is_healthy
        make_room(client)
        await eventually(lambda: not elsewhere.is_healthy and not primary.get_health().is_local)
        assert elsewhere.get_health().epoch == primary.get_health().epoch
        # Told once, by who saw it, as soon as anything could be told.
        await eventually(lambda: (two, True) in edges)
        assert edges == [(one, True), (two, True)]
        assert primary.statistics().total_completed == 10


@pytest.mark.parametrize("by_hand", ["isolate", "reset_health"])
async def test_a_decision_by_hand_that_a_full_server_refuses_is_offered_again(server, by_hand):
    # Nothing else is refused meanwhile that would say that the server is full.
    client = redis.Redis.from_url(server.url)
    async with (
        joined_async(server, "hand") as one,
        joined_async(server, "hand") as two,
        PriorityProcessorAtom(1, do, one) as primary,
        PriorityProcessorAtom(1, do, two) as elsewhere,
    ):
        if by_hand == "reset_health":
            primary.isolate()
            await eventually(lambda: not elsewhere.is_healthy)
        was_healthy = elsewhere.is_healthy
        fill(client)
        getattr(primary, by_hand)()
        await eventually(lambda: one.is_degraded)
        assert elsewhere.is_healthy == was_healthy != primary.is_healthy
        make_room(client)
        await eventually(lambda: elsewhere.is_healthy != was_healthy)
        assert primary.is_healthy == elsewhere.is_healthy


async def test_failures_that_the_server_throws_away_one_by_one_are_too_many_all_the_same(server):
    # An eviction policy does that to what is used seldom: the more seldom, the surer.
    client = redis.Redis.from_url(server.url)
    async with (
        joined_async(server, "evicted") as sink,
        PriorityProcessorAtom(1, fail, sink, failure_threshold=4, probe_interval=60, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, do, sink),
    ):
        for number in range(1, 4):
            await primary.call(number)
            await eventually(lambda number=number: client.zcard("{evicted}:f:pri1") == number)
            assert client.delete("{evicted}:f:pri1") == 1
        assert primary.is_healthy
        await primary.call(4)
        await eventually(lambda: not primary.is_healthy)
        assert primary.get_health().failures == 4
        assert not primary.get_health().is_local


async def test_failures_that_a_success_elsewhere_has_cleared_are_not_told_again(server):
    client = redis.Redis.from_url(server.url)
    async with (
        joined_async(server, "cleared") as one,
        joined_async(server, "cleared") as two,
        PriorityProcessorAtom(1, fail, one, failure_threshold=3, probe_interval=60, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, do, one),
        PriorityProcessorAtom(1, do, two, failure_threshold=3, probe_interval=60) as elsewhere,
    ):
        for _ in range(4):
            for number in (1, 2):
                await primary.call(number)
                await eventually(lambda number=number: client.zcard("{cleared}:f:pri1") == number)
            await eventually(lambda: elsewhere.get_health().failures == 2)
            await elsewhere.call(0)
            await eventually(lambda: client.zcard("{cleared}:f:pri1") == 0)
        assert primary.is_healthy
        assert elsewhere.is_healthy


async def test_a_table_that_the_server_throws_away_is_put_back_though_nobody_asks_for_it(server, monkeypatch):
    monkeypatch.setattr(_reader, "COMPARE_SECONDS", 0.1)
    client = redis.Redis.from_url(server.url)
    async with joined_async(server, "row") as one, PriorityProcessorAtom(1, do, one) as primary:
        # Isolated: nobody calls it, nobody probes it, so nobody comes upon the loss.
        primary.isolate()
        await eventually(lambda: client.hexists("{row}:h", "pri1"))
        assert client.delete("{row}:h") == 1
        await eventually(lambda: client.hexists("{row}:h", "pri1"))
        async with joined_async(server, "row") as late, PriorityProcessorAtom(1, do, late) as newcomer:
            await eventually(lambda: newcomer.get_health().state == "isolated")
            assert newcomer.get_health().epoch == primary.get_health().epoch


async def test_a_change_whose_entry_the_server_throws_away_is_found_in_the_table(server, monkeypatch):
    monkeypatch.setattr(_reader, "COMPARE_SECONDS", 0.1)
    client = redis.Redis.from_url(server.url)
    async with (
        joined_async(server, "entry") as one,
        joined_async(server, "entry") as two,
        PriorityProcessorAtom(1, do, one) as primary,
        PriorityProcessorAtom(1, do, two) as elsewhere,
    ):
        primary.isolate()
        await eventually(lambda: elsewhere.get_health().state == "isolated")
        row = client.hget("{entry}:h", "pri1")
        primary.reset_health()
        await eventually(lambda: elsewhere.is_healthy)
        # As if of an isolation that followed only the row had been left: its entry is gone before anybody reads it.
        version, epoch, _, rest = row.split(b":", 3)
        later = [b"%d" % (int(number) + 1_000_000) for number in (version, epoch)]
        client.hset("{entry}:h", "pri1", b":".join([*later, b"d", rest]))
        client.delete("{entry}:c")
        await eventually(lambda: elsewhere.get_health().state == primary.get_health().state == "isolated")
