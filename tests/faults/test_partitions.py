"""Workers that cannot reach the bus while others can: each side goes on, and afterwards there is one health again."""

from __future__ import annotations

import contextlib

import pytest

from .kit.fleet import Fleet
from .kit.proxy import Proxy, Weather

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]

KINDS = {
    "black-hole": Weather(is_silent=True),
    "lost": Weather(is_lost=True),
    "refused": Weather(is_refusing=True),
}


@pytest.fixture(params=KINDS)
def apart(request):
    return KINDS[request.param]


@contextlib.contextmanager
def split_fleet(server, near, far, **options):
    """Yield a fleet of which the last *far* workers sit behind a proxy, and the proxy."""
    with Proxy(server.url) as proxy:
        urls = [server.url] * near + [proxy.url] * far
        with Fleet(urls, server=server.url, count=near + far, **options) as fleet:
            yield fleet, proxy


@contextlib.contextmanager
def parted(fleet, proxy, weather, away):
    """Keep the far workers from the bus for the length of the block."""
    proxy.weather = weather
    if weather.is_refusing:
        proxy.cut()
    fleet.until(lambda: all(member.books().bus["is_degraded"] for member in away))
    try:
        yield
    finally:
        proxy.clear()
    fleet.until(lambda: not any(member.books().bus["is_degraded"] for member in away))


def judge_losses(fleet, tried, what):
    """As `judge`, where signals were lost: what their senders say of it is what the others say that they miss."""
    fleet.settle()
    assert fleet.disagreements() == []
    books = fleet.books()
    for book in books:
        assert book.bus["missed"] == sum(other.lost for other in books if other is not book)
    tried("Network", what, **fleet.figures())


def judge(fleet, tried, what):
    fleet.settle()
    assert fleet.disagreements() == []
    assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())
    tried("Network", what, **fleet.figures())


def trips(members, *, alone):
    """Return how many trips they told, of themselves alone or of the fleet."""
    edges = [edge for member in members for edge in member.books().edges]
    return len([signal for signal, _, is_alone in edges if signal.startswith("failover.req") and is_alone == alone])


def good_calls(fleet):
    return [book.calls.get("good", 0) for book in fleet.books()]


def test_one_worker_apart_goes_on_and_trips_alone_and_comes_back(server, tried, apart, request):
    with split_fleet(server, 3, 1) as (fleet, proxy):
        *others, away = fleet
        fleet.run(raises=100, calls=20)
        fleet.go_on(0.5)
        with parted(fleet, proxy, apart, [away]):
            away.ask("break", processor="pri1", is_broken=True)
            fleet.until(lambda: away.health()["state"] != "up")
            assert away.health()["is_local"]
            good = away.books().calls.get("good", 0)
            fleet.until(lambda: away.books().calls.get("good", 0) > good)  # by the reserve
            assert all(member.health()["state"] == "up" for member in others)
        # The fleet never saw a failure, so the trip of one is dropped; it calls on, and now its failures count for all.
        away.ask("break", processor="pri1", is_broken=False)
        fleet.until(lambda: all(fleet.are_up()))
        assert away.health()["is_local"] is False
        assert trips([away], alone=True) == 1
        judge(fleet, tried, f"1 of 4 workers apart ({request.node.callspec.id}), primary out for it alone")


def test_one_worker_apart_adopts_what_the_fleet_decided_meanwhile(server, tried, apart, request):
    with split_fleet(server, 3, 1) as (fleet, proxy):
        *others, away = fleet
        fleet.run(raises=100, calls=20)
        fleet.go_on(0.5)
        with parted(fleet, proxy, apart, [away]):
            away.ask("rate", raises=100, calls=0)  # it calls nobody, and so finds out nothing itself
            fleet.until(lambda: away.ask("running") == 0)
            with fleet.broken():
                fleet.until(lambda: all(member.health()["state"] != "up" for member in others))
                assert away.health()["state"] == "up"
                others[0].ask("isolate", processor="pri1")
                fleet.until(lambda: fleet.row().record.state == "isolated")
        fleet.until(lambda: away.health()["state"] == "isolated")
        assert away.health()["epoch"] == fleet.row().record.epoch
        away.ask("reset", processor="pri1")
        fleet.until(lambda: all(fleet.are_up()))
        judge(fleet, tried, f"1 of 4 workers apart ({request.node.callspec.id}), primary isolated by the others")


def test_a_fleet_in_halves_goes_on_in_both_and_has_one_health_afterwards(server, tried, apart, request):
    with split_fleet(server, 2, 2) as (fleet, proxy):
        near, far = fleet.members[:2], fleet.members[2:]
        fleet.run(raises=100, calls=20)
        fleet.go_on(0.5)
        with parted(fleet, proxy, apart, far):
            with fleet.broken():
                fleet.until(lambda: not any(fleet.are_up()))
                before = good_calls(fleet)
                fleet.until(lambda: all(now > then for now, then in zip(good_calls(fleet), before, strict=True)))
            fleet.until(lambda: all(fleet.are_up()))
            # Once more, and the parting ends while all are down.
            flag = contextlib.ExitStack()
            flag.enter_context(fleet.broken())
            fleet.until(lambda: not any(fleet.are_up()))
        with flag:
            fleet.until(lambda: not any(fleet.are_up()))
            fleet.until(lambda: len({member.health()["epoch"] for member in fleet}) == 1)
        fleet.until(lambda: all(fleet.are_up()))
        judge(fleet, tried, f"fleet of 4 in halves ({request.node.callspec.id}), primary out twice")
        # The half that could reach the table told each edge once, the workers of the other each for itself.
        assert trips(near, alone=False) == 2
        assert trips(near, alone=True) == 0
        assert trips(far, alone=True) == 4


def test_an_outbox_that_overflows_apart_loses_what_it_says_and_the_others_miss_just_that(server, tried):
    with split_fleet(server, 2, 1, backend={"max_outbox": 100}) as (fleet, proxy):
        away = fleet[2]
        fleet.run(raises=200)
        fleet.go_on(0.5)
        with parted(fleet, proxy, KINDS["black-hole"], [away]):
            fleet.until(lambda: away.books().bus["dropped"] > 100)
        judge_losses(fleet, tried, "1 of 3 workers of 200/s apart until its outbox of 100 has overflowed")


def test_what_is_older_than_the_bus_keeps_is_not_sent_and_the_others_miss_just_that(server, tried):
    with split_fleet(server, 2, 1, backend={"retention": 1.0}) as (fleet, proxy):
        away = fleet[2]
        fleet.run(raises=100)
        fleet.go_on(0.5)
        with parted(fleet, proxy, KINDS["black-hole"], [away]):
            fleet.until(lambda: away.books().bus["oldest_age"] > 2)
            away.ask("rate", raises=0, calls=0)
        fleet.settle()
        # What the others raised meanwhile is gone too: the stream holds a second.
        assert fleet.disagreements(forgot=True) == []
        books = fleet.books()
        assert books[2].bus["stale"] > 50
        assert books[2].bus["missed"] > 50
        # The others miss what was stale, and nothing of each other.
        assert [book.bus["missed"] for book in books[:2]] == [books[2].bus["stale"]] * 2
        tried("Network", "1 of 3 workers of 100/s apart for longer than the bus keeps signals", **fleet.figures())
