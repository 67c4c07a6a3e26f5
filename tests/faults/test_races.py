"""Processes that race to trip and to probe, one that dies with the lease, one whose clock is an hour off."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
import redis

from ephemeral import HealthOptions, SignalSink
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral_redis import RedisSignalBackend

pytestmark = [pytest.mark.real_time, pytest.mark.server]

RACER = Path(__file__).with_name("racer.py")
WORKERS, ROUNDS = 8, 200


@contextlib.contextmanager
def racers(url, namespace, count, rounds, **environment):
    processes = [
        subprocess.Popen([sys.executable, str(RACER), url, namespace, str(rounds)], env={**os.environ, **environment})
        for _ in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_eight_processes_trip_probe_and_restore_once_each_time(server, until):
    with (
        SignalSink(100_000, backend=RedisSignalBackend.from_url(server.url, namespace="race")) as sink,
        racers(server.url, "race", WORKERS, ROUNDS) as processes,
    ):

        def are_ready():
            assert [process.poll() for process in processes] == [None] * WORKERS, "one ended early, and said why above"
            return len(sink.sense("ready")) == WORKERS

        until(are_ready, 30)
        sink.raise_signal("go")
        for process in processes:
            assert process.wait(60) == 0
        until(lambda: len(sink.sense("edge.up")) >= ROUNDS)
        expected = Counter(f"p{number}" for number in range(ROUNDS))
        for name in ("edge.down", "lease", "edge.up"):
            assert Counter(event.key for event in sink.sense(name)) == expected, name


async def test_a_prober_that_is_killed_holds_up_nobody(server):
    # The lease lasts as long as a probe may take, and a margin of 2 s for its verdict to travel.
    rules = HealthRules.of(HealthOptions(), failure_threshold=3, probe_interval=0.01, timeout=0.01)
    async with SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="dead")) as sink:
        store, now = SharedHealthStore(sink.backend), current_loop().now
        with racers(server.url, "dead", 1, "hold", PROBE_SECONDS="0.01") as (prober,):
            async with sink.listen("ready, held") as events:
                await anext(events)
                sink.raise_signal("go")
                store.register("pri1", rules, now())
                for _ in range(3):
                    store.failed("pri1", 0, now())
                await anext(events)
            prober.kill()
        held = store.record("pri1").lease
        assert held.owner != sink.origin
        assert await store.acquire("pri1", now()) is None
        await anyio.sleep(held.until - now())
        lease = await store.acquire("pri1", now())
        assert lease is not None
        assert lease.fence > held.fence
        store.finish(lease, now(), is_good=True)
        with anyio.fail_after(5):
            while not store.record("pri1").is_up:  # noqa: ASYNC110  until the news are here
                await anyio.sleep(0.001)


async def test_a_worker_whose_clock_is_an_hour_off_is_dated_right_and_trips_like_the_others(server):
    async with SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="clock")) as sink:
        with racers(server.url, "clock", 1, 3, CLOCK_OFF="3600") as (racer,):
            async with sink.listen("ready, edge.up") as events:
                ready = await anext(events)
                sink.raise_signal("go")
                for _ in range(3):
                    await anext(events)
            assert racer.wait(30) == 0
        assert abs(sink.now() - ready.timestamp) < 30
        assert await sink.shared_count("edge.down", within=30) == 3


async def test_a_table_that_vanishes_while_all_are_connected_is_put_back_by_the_next_who_needs_it(server):
    rules = HealthRules.of(HealthOptions(), failure_threshold=2, probe_interval=0.01, timeout=5.0)
    async with SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="flushed")) as sink:
        store, now = SharedHealthStore(sink.backend), current_loop().now
        store.register("pri1", rules, now())
        client = redis.Redis.from_url(server.url)
        for take, holds in [
            (lambda: store.isolate("pri1", now()), lambda: store.record("pri1").state == "isolated"),
            (lambda: store.reset("pri1", now()), lambda: store.record("pri1").is_up),
            (lambda: fail_twice(store, now()), lambda: store.record("pri1").state == "down"),
        ]:
            take()
            # If the last loss took the entry of the decision before, unread, that waits for the next look at the table.
            with anyio.fail_after(15):
                # In the table too, not only shown: a decision by hand is shown before it is there.
                while not (holds() and client.hexists("{flushed}:h", "pri1")):
                    await anyio.sleep(0.02)
                    if store.record("pri1").is_up and not holds():
                        # Failures of an instant in which the table has lost what they are of count for nothing.
                        fail_twice(store, now())
            client.flushall()
        commands = client.info("stats")["total_commands_processed"]
        await anyio.sleep(0.2)
        # Nobody asks again and again for what the table has lost.
        assert client.info("stats")["total_commands_processed"] - commands < 50


def fail_twice(store, now):
    for _ in range(2):
        store.failed("pri1", store.record("pri1").epoch, now)
