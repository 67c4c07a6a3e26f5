"""In real clusters of one node and of three: a slot moves away, a node dies and its replica takes over."""

from __future__ import annotations

import gc
import threading

import pytest
import redis
from redis.asyncio import RedisCluster

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, SignalBusError

from .kit.cluster import Cluster, has_slots
from .kit.deployment import rights, works
from .kit.fleet import Fleet

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]


@pytest.fixture(scope="module")
def three():
    with Cluster(3, arguments=rights("worker")) as cluster:
        yield cluster


def watch_from(fleet, node):
    """Look, from outside, at the node that has the namespace now."""
    fleet._server.close()
    fleet._server = redis.Redis.from_url(node.url)


def epochs(fleet):
    return [member.health()["epoch"] for member in fleet]


@pytest.mark.parametrize("masters", [1, 3])
def test_all_of_the_bus_works_wherever_the_namespace_lies(masters, tried):
    tried("Cluster", f"{masters} node{'s' if masters > 1 else ''}, a namespace on each, found from any node")
    with Cluster(masters) as cluster:
        on_each = {cluster.owner(name): name for name in (f"shop-{number}" for number in range(50))}
        assert len(on_each) == masters
        for number, namespace in enumerate(on_each.values()):
            works(cluster.url, namespace)
            # Any one node is enough to find the others.
            anyone = cluster.nodes[number - 1].tcp_url.replace("redis://", "redis+cluster://")
            works(anyone, f"{namespace}-again")


def test_a_workers_rights_suffice(three, tried):
    tried("Cluster", "a worker's rights")
    works(three.url.replace("://", "://worker:secret@"))


def test_a_node_that_does_not_have_the_namespace_says_how_to_find_it(three):
    owner = three.owner("shop")
    other = next(node for node in three.nodes if node is not owner)
    backend = RedisSignalBackend.from_url(other.tcp_url, namespace="shop", require=True)
    with (
        pytest.raises(SignalBusError, match=r"another node .* a redis\+cluster:// URL finds it"),
        SignalSink(backend=backend),
    ):
        pass


def test_a_slot_that_moves_away_under_load_and_back_loses_and_doubles_nothing(three, tried):
    what = "slot moved away, back and away under 3 of 300/s, while a primary is out"
    tried("Cluster", what)
    with Fleet(three.url, server=three.nodes[0].url, count=3) as fleet:
        home = three.owner(fleet.namespace)
        away = next(node for node in three.nodes if node is not home)
        watch_from(fleet, home)
        fleet.run(raises=300, calls=20)
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
            before = epochs(fleet)
            for source, target in [(home, away), (away, home), (home, away)]:
                # Slowly, so that calls come while some keys are here and some there.
                three.move(fleet.namespace, source, target, between=lambda: fleet.go_on(0.02))
                fleet.go_on(0.7)
                fleet.until(lambda: not any(book.bus["is_degraded"] for book in fleet.books()), 60)
            watch_from(fleet, away)
            assert not any(fleet.are_up())
            assert all(now >= then for now, then in zip(epochs(fleet), before, strict=True))
        fleet.until(lambda: all(fleet.are_up()), 60)
        fleet.settle(60)
        assert fleet.disagreements() == []
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())
        tried("Cluster", what, **fleet.figures())


def test_a_slot_that_stays_half_moved_is_waited_for(three, until, tried):
    tried("Cluster", "slot half moved: waited for, nothing lost")
    home = three.owner("half")
    away = next(node for node in three.nodes if node is not home)
    with SignalSink(backend=RedisSignalBackend.from_url(three.url, namespace="half", require=True)) as sink:
        sink.raise_signal("a")
        assert sink.backend.count("a", 60).result(5) == 1
        halted, go_on = threading.Event(), threading.Event()
        moves = iter(range(100))

        def halt():
            if next(moves) == 2:
                halted.set()
                go_on.wait(60)

        mover = threading.Thread(target=three.move, args=("half", home, away), kwargs={"between": halt})
        mover.start()
        assert halted.wait(60)
        sink.raise_signal("a")
        until(lambda: sink.is_degraded)
        go_on.set()
        mover.join()
        until(lambda: not sink.is_degraded, 60)
        assert sink.backend.count("a", 60).result(5) == 2


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_node_that_goes_is_followed_by_its_replica(how, tried):
    what = f"node {how} under 3 of 300/s, replica takes over, while a primary is out"
    tried("Cluster", what)
    with Cluster(3, spares=1) as cluster:
        fleet = Fleet(cluster.url, server=cluster.nodes[0].url, count=3)
        home, spare = cluster.owner(fleet.namespace), cluster.nodes[3]
        cluster.replicate(spare, home)
        with fleet:
            fleet.run(raises=300, calls=20)
            with fleet.broken():
                fleet.until(lambda: not any(fleet.are_up()))
                before = epochs(fleet)
                home.kill() if how == "killed" else home.freeze()
                fleet.until(lambda: has_slots(spare), 60)
                fleet.until(lambda: all(book.bus["reconnects"] for book in fleet.books()), 60)
                fleet.until(lambda: not any(book.bus["is_degraded"] for book in fleet.books()), 60)
                watch_from(fleet, spare)
                assert not any(fleet.are_up())
                assert all(now >= then for now, then in zip(epochs(fleet), before, strict=True))
            fleet.until(lambda: all(fleet.are_up()), 60)
            fleet.settle(60)
            assert fleet.disagreements(forgot=True) == []
            tried("Cluster", what, **fleet.figures())


# redis-py's own client for clusters closes its connections when it likes; they end here, and in no later test.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_for_clusters_of_ones_own_making_will_do(three, until, tried):
    tried("Cluster", "client_factory that makes a RedisCluster")
    port = int(three.nodes[0].tcp_url.rpartition(":")[2])

    def sink():
        def make(**settings):
            return RedisCluster("127.0.0.1", port, **settings)

        return SignalSink(backend=RedisSignalBackend(make, namespace="own", require=True))

    with sink() as one, sink() as two:
        one.raise_signal("a")
        until(lambda: two.detect("a"))
        assert two.backend.count("a", 60).result(5) == 1
    gc.collect()
