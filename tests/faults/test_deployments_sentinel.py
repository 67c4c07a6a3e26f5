"""Behind three sentinels that watch a master and a replica, all real."""

from __future__ import annotations

import gc
import time

import pytest
import redis
from redis.asyncio import Sentinel

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, SignalBusError

from .kit.deployment import rights, works
from .kit.fleet import Fleet
from .kit.sentinels import SERVICE, Sentinels

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]


@pytest.fixture
def sentinels():
    with Sentinels() as running:
        yield running


def epochs(fleet):
    return [member.health()["epoch"] for member in fleet]


def are_degraded(fleet):
    return [book.bus["is_degraded"] for book in fleet.books()]


def follow_master(fleet, sentinels):
    """Look, from outside, at who is master now."""
    fleet._server.close()
    fleet._server = redis.Redis.from_url(sentinels.master.url)


def judge(fleet, tried, what, *, had_two_masters=False):
    """Let all arrive, hold the account, and write down the figures."""
    fleet.settle(60)
    # A master that dies, or is told to step back, may have acknowledged what no replica has.
    found = fleet.disagreements(forgot=True)
    if had_two_masters:
        # For the moment in which some ask the one and some the other, each gives out its own right to probe.
        found = [one for one in found if "was probed by" not in one]
    assert found == []
    tried("Sentinel", what, **fleet.figures())


@pytest.mark.parametrize("how", ["killed", "frozen", "told to step back"])
def test_a_master_that_goes_takes_no_health_with_it(sentinels, tried, how):
    what = f"master {how} under 3 of 300/s, while a primary is out"
    tried("Sentinel", what)
    with Fleet(sentinels.url, server=sentinels.master.url, count=3) as fleet:
        fleet.run(raises=300, calls=20)
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
            before, old = epochs(fleet), sentinels.master
            if how == "killed":
                old.kill()
            elif how == "frozen":
                old.freeze()
            else:
                sentinels.fail_over()
            fleet.until(lambda: sentinels.master is not old, 60)
            fleet.until(lambda: all(book.bus["reconnects"] for book in fleet.books()), 60)
            fleet.until(lambda: not any(are_degraded(fleet)), 60)
            follow_master(fleet, sentinels)
            assert not any(fleet.are_up())
            assert all(now >= then for now, then in zip(epochs(fleet), before, strict=True))
            if how == "frozen":
                # It thinks for a moment that it is master still; nobody asks it.
                old.resume()
                fleet.go_on(1)
        fleet.until(lambda: all(fleet.are_up()), 60)
        assert fleet.row().record.epoch >= max(before)
        judge(fleet, tried, what, had_two_masters=how == "told to step back")


def test_a_sentinel_that_hangs_and_one_that_is_dead_are_passed_over(sentinels, tried):
    tried("Sentinel", "first sentinel hangs, second is dead")
    sentinels.freeze_sentinel(0)
    sentinels.kill_sentinel(1)
    began_at = time.monotonic()
    works(sentinels.url)
    assert time.monotonic() - began_at < 5


def test_without_a_master_a_worker_starts_alone_or_says_why_not(sentinels, until, tried):
    tried("Sentinel", "worker started while no master is known, and one that requires it")
    sentinels.kill_sentinel(2)
    sentinels.kill_sentinel(1)
    sentinels.master.kill()
    until(lambda: sentinels.holds_master_for_down(0), 60)
    with (
        pytest.raises(SignalBusError, match=f"no master for '{SERVICE}': .*is down"),
        SignalSink(backend=RedisSignalBackend.from_url(sentinels.url, namespace="shop", require=True)),
    ):
        pass
    with SignalSink(backend=RedisSignalBackend.from_url(sentinels.url, namespace="shop")) as sink:
        sink.raise_signal("a")
        assert sink.is_degraded
        assert sink.detect("a")
        sentinels.servers[0].restart()
        until(lambda: not sink.is_degraded, 60)
        assert sink.backend.count("a", 60).result(5) == 1


def test_leaving_while_nobody_knows_a_master_takes_no_longer_than_the_promise(sentinels, caplog, tried):
    tried("Sentinel", "leaving while master and sentinels are dead")
    with SignalSink(backend=RedisSignalBackend.from_url(sentinels.url, namespace="shop", require=True)) as sink:
        sentinels.kill_sentinels()
        sentinels.servers[0].kill()
        sink.raise_signal("a")
        began_at = time.monotonic()
    assert time.monotonic() - began_at < 4
    assert "closed with 1 signal that" in caplog.text


def test_servers_and_sentinels_that_know_their_users(tried):
    tried("Sentinel", "a worker's rights, and sentinels with a password")
    with Sentinels(password="watched", arguments=rights("worker")) as sentinels:
        url = sentinels.url.replace("://", "://worker:secret@")
        works(url, sentinel_kwargs={"password": "watched"})
        backend = RedisSignalBackend.from_url(url, namespace="shop", require=True)
        with pytest.raises(SignalBusError, match=r"(?i)no master for .*authenticat"), SignalSink(backend=backend):
            pass


# The clients that redis-py's Sentinel makes for itself are closed by nobody else, and by us not always in time.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_of_sentinels_of_ones_own_making_will_do(sentinels, until, tried):
    tried("Sentinel", "client_factory that makes a master_for, master killed")
    hosts = [("127.0.0.1", port) for port in sentinels.ports]

    def sink():
        def make(**settings):
            sentinel = Sentinel(hosts)
            client = sentinel.master_for(SERVICE, **settings)
            close = client.aclose

            async def close_all():
                await close()
                for one in sentinel.sentinels:
                    await one.aclose()

            client.aclose = close_all
            return client

        return SignalSink(backend=RedisSignalBackend(make, namespace="own", require=True))

    with sink() as one, sink() as two:
        one.raise_signal("a")
        until(lambda: two.detect("a"))
        sentinels.master.kill()
        until(lambda: one.is_degraded and two.is_degraded)
        one.raise_signal("b")
        until(lambda: two.detect("b"), 60)
    gc.collect()
